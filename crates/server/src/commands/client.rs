//! CLIENT: who is connected, what they call themselves, and sending them away.

use super::connection::{BAD_NAME, is_good_name};
use super::{Close, Context, Failure, Outcome, Replies, SYNTAX_ERROR, help, integer};
use crate::clients::{ClientInfo, Waits};
use crate::resp::Args;
use crate::shared::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const HELP: &[&str] = &[
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return -1: client tracking is not supported.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are: ADDR, LADDR, TYPE, USER, ID, SKIPME, MAXAGE.",
    "LIST [TYPE NORMAL | ID <client-id> [<client-id> ...]]",
    "    Return information about client connections.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted; reads do not touch anything here.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Set what the client library calls itself.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
];

pub(super) fn client(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let subcommand = args.at(1).to_ascii_lowercase();
    match std::str::from_utf8(&subcommand).unwrap_or("") {
        "id" => context.out.integer(context.client.info.id as i64),
        "info" => info(context),
        "getname" => getname(context),
        "getredir" => context.out.integer(-1),
        "trackinginfo" => trackinginfo(context),
        "setname" => return setname(context, args.at(2)),
        "setinfo" => return setinfo(context, args.at(2), args.at(3)),
        "reply" => return reply(context, args.at(2)),
        "no-evict" => return switch(context, args.at(2), |info| &info.no_evict),
        "no-touch" => return switch(context, args.at(2), |info| &info.no_touch),
        "list" => return list(context, args),
        "kill" => return kill(context, args),
        "pause" => return pause(context, args),
        "unblock" => return unblock(context, args),
        "unpause" => unpause(context),
        _ => return help(context.out, "CLIENT", HELP),
    }
    Ok(())
}

fn info(context: &mut Context<'_>) {
    let line = context.client.info.line(context.core.uptime_ms) + "\n";
    context.out.verbatim(&line);
}

fn getname(context: &mut Context<'_>) {
    let words = context.client.info.words.read();
    match words.name.is_empty() {
        true => context.out.null(),
        false => context.out.bulk(words.name.as_bytes()),
    }
}

fn trackinginfo(context: &mut Context<'_>) {
    let out = &mut *context.out;
    out.map(3);
    out.bulk(b"flags");
    out.set(1);
    out.bulk(b"off");
    out.bulk(b"redirect");
    out.integer(-1);
    out.bulk(b"prefixes");
    out.array(0);
}

fn setname(context: &mut Context<'_>, name: &[u8]) -> Outcome {
    if !is_good_name(name) {
        return Err(BAD_NAME.into());
    }
    context.client.info.words.write().name = String::from_utf8_lossy(name).into_owned();
    context.out.ok();
    Ok(())
}

fn setinfo(context: &mut Context<'_>, attribute: &[u8], value: &[u8]) -> Outcome {
    let attribute = attribute.to_ascii_lowercase();
    if !is_good_name(value) {
        let attribute = String::from_utf8_lossy(&attribute);
        return Err(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        )
        .into());
    }
    let mut words = context.client.info.words.write();
    let text = String::from_utf8_lossy(value).into_owned();
    match &attribute[..] {
        b"lib-name" => words.library_name = text,
        b"lib-ver" => words.library_version = text,
        _ => {
            let attribute = String::from_utf8_lossy(&attribute);
            return Err(format!("ERR Unrecognized option '{attribute}'").into());
        }
    }
    context.out.ok();
    Ok(())
}

fn reply(context: &mut Context<'_>, mode: &[u8]) -> Outcome {
    let replies = &mut context.client.replies;
    match &mode.to_ascii_uppercase()[..] {
        b"ON" => {
            *replies = Replies::default();
            context.out.ok();
        }
        b"OFF" => replies.are_off = true,
        b"SKIP" => replies.skip_next = !replies.are_off,
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

fn switch(
    context: &mut Context<'_>,
    state: &[u8],
    which: impl Fn(&ClientInfo) -> &AtomicBool,
) -> Outcome {
    let on = match &state.to_ascii_uppercase()[..] {
        b"ON" => true,
        b"OFF" => false,
        _ => return Err(SYNTAX_ERROR.into()),
    };
    which(&context.client.info).store(on, Relaxed);
    context.out.ok();
    Ok(())
}

fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut ids: Option<Vec<u64>> = None;
    let mut none = false;
    match args.get(2).map(|option| option.to_ascii_uppercase()).as_deref() {
        None => {}
        Some(b"TYPE") if args.len() == 4 => none = !client_type(args.at(3))?,
        Some(b"ID") if args.len() > 3 => {
            let wanted = args.from(3).map(|id| {
                integer(id).map(|id| id as u64).map_err(|_| "ERR Invalid client ID".into())
            });
            ids = Some(wanted.collect::<Result<_, Failure>>()?);
        }
        Some(_) => return Err(SYNTAX_ERROR.into()),
    }
    let mut text = String::new();
    for info in context.shared.clients.all() {
        if !none && ids.as_ref().is_none_or(|ids| ids.contains(&info.id)) {
            text.push_str(&info.line(context.core.uptime_ms));
            text.push('\n');
        }
    }
    context.out.verbatim(&text);
    Ok(())
}

/// Whether clients of this type exist here: only normal ones do.
fn client_type(name: &[u8]) -> Result<bool, Failure> {
    match &name.to_ascii_lowercase()[..] {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)).into()),
    }
}

/// Whom CLIENT KILL is after.
#[derive(Default)]
struct Victims {
    id: Option<u64>,
    address: Option<String>,
    local_address: Option<String>,
    nobody: bool,
    min_age_s: u64,
    spare_me: bool,
}

impl Victims {
    fn parse(args: Args<'_>) -> Result<Victims, Failure> {
        let mut victims = Victims { spare_me: true, ..Victims::default() };
        let mut rest = args.from(2);
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or(SYNTAX_ERROR)?;
            let text = || String::from_utf8_lossy(value).into_owned();
            match &option.to_ascii_uppercase()[..] {
                b"ID" => {
                    let id = integer(value).ok().filter(|id| *id > 0);
                    victims.id = Some(id.ok_or("ERR client-id should be greater than 0")? as u64);
                }
                b"ADDR" => victims.address = Some(text()),
                b"LADDR" => victims.local_address = Some(text()),
                b"TYPE" => victims.nobody |= !client_type(value)?,
                b"USER" if value == b"default" => {}
                b"USER" => return Err(format!("ERR No such user '{}'", text()).into()),
                b"MAXAGE" => {
                    victims.min_age_s = u64::try_from(integer(value)?).map_err(|_| SYNTAX_ERROR)?
                }
                b"SKIPME" if value.eq_ignore_ascii_case(b"yes") => victims.spare_me = true,
                b"SKIPME" if value.eq_ignore_ascii_case(b"no") => victims.spare_me = false,
                _ => return Err(SYNTAX_ERROR.into()),
            }
        }
        Ok(victims)
    }

    fn include(&self, info: &ClientInfo, now_ms: u64) -> bool {
        let age_s = now_ms.saturating_sub(info.connected_ms) / 1000;
        !self.nobody
            && self.id.is_none_or(|id| id == info.id)
            && self.address.as_ref().is_none_or(|address| *address == info.address)
            && self.local_address.as_ref().is_none_or(|address| *address == info.local_address)
            && age_s >= self.min_age_s
    }
}

fn kill(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old_style = args.len() == 3;
    let victims = match old_style {
        true => Victims {
            address: Some(String::from_utf8_lossy(args.at(2)).into_owned()),
            ..Victims::default()
        },
        false => Victims::parse(args)?,
    };
    let mut killed = 0;
    for info in context.shared.clients.all() {
        if victims.include(&info, context.core.uptime_ms) {
            let me = info.id == context.client.info.id;
            if me && victims.spare_me {
                continue;
            }
            killed += 1;
            match me {
                true => context.client.close = Close::AfterReplies,
                false => send_away(context, &info),
            }
        }
    }
    match (old_style, killed) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => context.out.ok(),
        (false, _) => context.out.integer(killed),
    }
    Ok(())
}

fn send_away(context: &Context<'_>, info: &Arc<ClientInfo>) {
    if !info.killed.swap(true, Relaxed) {
        context.shared.loops[info.owner].send(Message::Kill(info.id));
    }
}

/// CLIENT UNBLOCK id [TIMEOUT | ERROR]: who waits for an element of a queue waits no more.
fn unblock(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let how = match args.get(3).map(|how| how.to_ascii_uppercase()).as_deref() {
        None | Some(b"TIMEOUT") if args.len() < 5 => Waits::ToldOver,
        Some(b"ERROR") if args.len() == 4 => Waits::ToldError,
        _ => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    let id = integer(args.at(2))? as u64;
    let found = context.shared.clients.find(id).filter(|info| info.waits.tell(how));
    if let Some(info) = &found {
        context.shared.loops[info.owner].send(Message::Pause);
    }
    context.out.integer(i64::from(found.is_some()));
    Ok(())
}

fn pause(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 4 {
        return Err(SYNTAX_ERROR.into());
    }
    let everything = match args.get(3).map(|mode| mode.to_ascii_uppercase()).as_deref() {
        None | Some(b"ALL") => true,
        Some(b"WRITE") => false,
        Some(_) => return Err(SYNTAX_ERROR.into()),
    };
    let ms = integer(args.at(2)).map_err(|_| "ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    let now_ms = context.core.uptime_ms;
    context.shared.pause.start(now_ms, now_ms.saturating_add(ms), everything);
    tell_loops(context);
    context.out.ok();
    Ok(())
}

fn unpause(context: &mut Context<'_>) {
    context.shared.pause.end();
    tell_loops(context);
    context.out.ok();
}

fn tell_loops(context: &mut Context<'_>) {
    context.shared.loops.iter().for_each(|each| each.send(Message::Pause));
    context.core.paused = context.shared.pause.now(context.core.uptime_ms);
}
