//! COMMAND: the table of commands, told to clients.

use super::{Command, Context, Outcome, SYNTAX_ERROR, docs, flag, help, table};
use crate::glob;
use crate::resp::{Args, Output};

/// Flags by the names Redis gives them.
const FLAG_NAMES: &[(u32, &str)] = &[
    (flag::WRITE, "write"),
    (flag::READ, "readonly"),
    (flag::DENY_OOM, "denyoom"),
    (flag::ADMIN, "admin"),
    (flag::NO_SCRIPT, "noscript"),
    (flag::LOADING, "loading"),
    (flag::STALE, "stale"),
    (flag::FAST, "fast"),
    (flag::NO_AUTH, "no_auth"),
    (flag::NO_MULTI, "no_multi"),
];

const HELP: &[&str] = &[
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "DOCS [<command-name> [<command-name> ...]]",
    "    Return documentation details about multiple commands.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "LIST [FILTERBY (MODULE <module-name>|ACLCAT <cat>|PATTERN <pattern>)]",
    "    Return a list of all commands in this server.",
];

pub(super) fn command(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Some(subcommand) = args.get(1).map(<[u8]>::to_ascii_lowercase) else {
        context.out.array(table::count());
        table::COMMANDS.iter().for_each(|command| describe(context.out, command));
        return Ok(());
    };
    match (&subcommand[..], args.len()) {
        (b"count", 2) => context.out.integer(table::count() as i64),
        (b"info", _) => info(context.out, args),
        (b"docs", _) => describe_all(context.out, args),
        (b"list", _) => return list(context.out, args),
        (b"getkeys", _) => return getkeys(context.out, args),
        _ => return help(context.out, "COMMAND", HELP),
    }
    Ok(())
}

fn info(out: &mut Output, args: Args<'_>) {
    if args.len() == 2 {
        out.array(table::count());
        return table::COMMANDS.iter().for_each(|command| describe(out, command));
    }
    out.array(args.len() - 2);
    for name in args.from(2) {
        match table::find(name) {
            Some(command) => describe(out, command),
            None => out.null_array(),
        }
    }
}

/// What COMMAND INFO says of one command: ten fields.
fn describe(out: &mut Output, command: &Command) {
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(i64::from(command.arity));
    let flags = || FLAG_NAMES.iter().filter(|(flag, _)| command.is(*flag));
    out.set(flags().count());
    flags().for_each(|(_, name)| out.simple(name));
    out.integer(i64::from(command.keys.first));
    out.integer(i64::from(command.keys.last));
    out.integer(i64::from(command.keys.step));
    let categories = categories(command);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(category));
    // Tips, key specifications and subcommands.
    (0..3).for_each(|_| out.array(0));
}

fn categories(command: &Command) -> Vec<String> {
    let mut categories = Vec::new();
    for (flag, category) in
        [(flag::WRITE, "@write"), (flag::READ, "@read"), (flag::ADMIN, "@admin")]
    {
        if command.is(flag) {
            categories.push(category.to_string());
        }
    }
    categories.push(format!(
        "@{}",
        match docs::of(command.name).group {
            "generic" => "keyspace",
            "transactions" => "transaction",
            "server" => "dangerous",
            group => group,
        }
    ));
    categories.push(if command.is(flag::FAST) { "@fast" } else { "@slow" }.into());
    categories
}

fn describe_all(out: &mut Output, args: Args<'_>) {
    let commands: Vec<&Command> = match args.len() {
        2 => table::COMMANDS.iter().collect(),
        _ => args.from(2).filter_map(table::find).collect(),
    };
    out.map(commands.len());
    for command in commands {
        out.bulk(command.name.as_bytes());
        out.map(3);
        let doc = docs::of(command.name);
        for (key, value) in [("summary", doc.summary), ("since", doc.since), ("group", doc.group)] {
            out.bulk(key.as_bytes());
            out.bulk(value.as_bytes());
        }
    }
}

fn list(out: &mut Output, args: Args<'_>) -> Outcome {
    let matches: Box<dyn Fn(&Command) -> bool> = match args.len() {
        2 => Box::new(|_| true),
        5 if args.at(2).eq_ignore_ascii_case(b"filterby") => {
            let wanted = args.at(4).to_vec();
            match &args.at(3).to_ascii_uppercase()[..] {
                b"MODULE" => Box::new(|_| false),
                b"PATTERN" => Box::new(move |command| {
                    glob::matches_ignoring_case(&wanted, command.name.as_bytes())
                }),
                b"ACLCAT" => Box::new(move |command| {
                    categories(command)
                        .iter()
                        .any(|category| wanted.eq_ignore_ascii_case(&category.as_bytes()[1..]))
                }),
                _ => return Err(SYNTAX_ERROR.into()),
            }
        }
        _ => return Err(SYNTAX_ERROR.into()),
    };
    let names: Vec<&str> = table::COMMANDS
        .iter()
        .filter(|command| matches(command))
        .map(|command| command.name)
        .collect();
    out.array(names.len());
    names.iter().for_each(|name| out.bulk(name.as_bytes()));
    Ok(())
}

fn getkeys(out: &mut Output, args: Args<'_>) -> Outcome {
    let command = table::find(args.at(2)).ok_or("ERR Invalid command specified")?;
    let arguments = args.len() - 2;
    if command.keys.first == 0 {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.takes(arguments) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys: Vec<usize> = command.keys.of(arguments).collect();
    out.array(keys.len());
    keys.into_iter().for_each(|position| out.bulk(args.at(position + 2)));
    Ok(())
}
