//! Running the server: SAVE, BGSAVE, LASTSAVE, BACKUP, SHUTDOWN, TIME, WAIT, ROLE, and what is refused.

use super::{Close, Context, Outcome, SYNTAX_ERROR, integer};
use crate::backups::is_name;
use crate::resp::Args;
use crate::shared::unix_time;
use std::sync::atomic::Ordering::Relaxed;

/// SAVE: everything acknowledged before is durable when it replies.
pub(super) fn save(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.shared.save()?;
    context.out.ok();
    Ok(())
}

/// BGSAVE. Writes are always on their way to the medium; what is left to do in the background is
/// what SAVE does, and the next turn's timer does it.
pub(super) fn bgsave(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.get(1) {
        None => {}
        Some(option) if args.len() == 2 && option.eq_ignore_ascii_case(b"schedule") => {}
        Some(_) => return Err(SYNTAX_ERROR.into()),
    }
    if context.shared.saving.swap(true, Relaxed) {
        return Err("ERR Background save already in progress".into());
    }
    context.shared.request_save();
    context.out.simple("Background saving started");
    Ok(())
}

/// BACKUP name: all databases as they are at one moment, in a folder of that name. INFO tells how far it is.
pub(super) fn backup(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = std::str::from_utf8(args.at(1)).ok().filter(|name| is_name(name));
    let name = name.ok_or(
        "ERR the name of a backup is 1 to 64 letters, digits, `_`, `-` or `.` (not first): it is a folder below \
         `backups` in the server's directory",
    )?;
    if !context.shared.backups.ask(name.into()) {
        return Err("ERR a backup is being made: INFO persistence tells how far it is".into());
    }
    context.out.simple("Background backup started");
    Ok(())
}

pub(super) fn lastsave(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.out.integer(context.shared.saved_s.load(Relaxed) as i64);
    Ok(())
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE]: the connection is closed without a reply; the server
/// drains and ends.
pub(super) fn shutdown(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut save, mut nosave, mut force) = (false, false, false);
    for option in args.from(1) {
        match &option.to_ascii_uppercase()[..] {
            b"SAVE" if !nosave => save = true,
            b"NOSAVE" if !save => nosave = true,
            b"FORCE" => force = true,
            b"NOW" => {}
            b"ABORT" if args.len() == 2 => return Err("ERR No shutdown in progress.".into()),
            _ => return Err(SYNTAX_ERROR.into()),
        }
    }
    if !nosave
        && let Err(error) = context.shared.save()
        && !force
    {
        return Err(format!("ERR Errors trying to SHUTDOWN. Check logs. {error}").into());
    }
    context.shared.skip_final_sync.store(nosave, Relaxed);
    context.client.close = Close::Now;
    context.shared.stop();
    Ok(())
}

pub(super) fn time(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let now = unix_time();
    context.out.array(2);
    context.out.bulk(now.as_secs().to_string().as_bytes());
    context.out.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// WAIT: there are no replicas, so nothing is waited for.
pub(super) fn wait(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    integer(args.at(1))?;
    if integer(args.at(2)).map_err(|_| "ERR timeout is not an integer or out of range")? < 0 {
        return Err("ERR timeout is negative".into());
    }
    context.out.integer(0);
    Ok(())
}

pub(super) fn role(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.out.array(3);
    context.out.bulk(b"master");
    context.out.integer(0);
    context.out.array(0);
    Ok(())
}

pub(super) fn debug(_context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    Err("ERR DEBUG command not allowed. Terrace has no way to enable it.".into())
}

pub(super) fn cluster(_context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    Err("ERR This instance has cluster support disabled".into())
}
