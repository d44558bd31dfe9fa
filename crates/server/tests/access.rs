//! Who may do what: protected mode and passwords.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, TestServer, options};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use terrace_server::ServerOptions;

/// An address of this machine that is not loopback, if it has one: connecting an unbound UDP
/// socket sends nothing but makes the system choose.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn remote_clients_need_a_password_or_leave() {
    let Some(own) = own_address() else {
        eprintln!("\n*** no address but loopback: protected mode NOT tested ***\n");
        return;
    };
    let server = TestServer::with(ServerOptions {
        addresses: vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))],
        ..options()
    });
    let port = server.address().port();
    let remote = || Client::connect(SocketAddr::from((own, port)));
    let mut local = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let refusal = String::from_utf8(remote().rest()).unwrap();
    assert!(refusal.starts_with("-DENIED Terrace is running in protected mode because protected mode is enabled and no password is set for the default user. "), "{refusal}");
    assert!(refusal.ends_with("accepting connections from the outside.\r\n"));
    assert_eq!(local.line("PING"), "PONG");
    // With a password they may knock.
    assert_eq!(local.line("CONFIG SET requirepass secret"), "OK");
    let mut client = remote();
    assert_eq!(client.line("PING"), "-NOAUTH Authentication required.");
    assert_eq!(client.line("AUTH secret"), "OK");
    assert_eq!(client.line("PING"), "PONG");
    // Or protected mode is switched off.
    assert_eq!(local.line("CONFIG SET requirepass \"\" protected-mode no"), "OK");
    assert_eq!(remote().line("PING"), "PONG");
}

#[test]
fn loopback_is_the_default() {
    assert_eq!(ServerOptions::default().addresses, [SocketAddr::from((Ipv4Addr::LOCALHOST, 6379))]);
    let server = TestServer::start();
    if let Some(own) = own_address() {
        assert!(TcpStream::connect(SocketAddr::from((own, server.address().port()))).is_err());
    }
}

#[test]
fn passwords() {
    let server = TestServer::with(ServerOptions { password: Some("secret".into()), ..options() });
    let mut client = server.client();
    let refused = "-NOAUTH Authentication required.";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for line in [
        "PING",
        "GET a",
        "SET a 1",
        "MULTI",
        "CLIENT ID",
        "CONFIG GET *",
        "INFO",
        "SHUTDOWN",
        "FLUSHALL",
    ] {
        assert_eq!(client.line(line), refused, "{line}");
    }
    assert_eq!(
        client.line("EXEC"),
        "-EXECABORT Transaction discarded because of: NOAUTH Authentication required."
    );
    assert_eq!(client.line("get"), "-ERR wrong number of arguments for 'get' command");
    assert!(
        client
            .line("HELLO")
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    assert!(client.line("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(client.line("HELLO 3 AUTH default wrong"), wrong);
    assert_eq!(client.line("AUTH wrong"), wrong);
    assert_eq!(client.line("AUTH nobody secret"), wrong);
    assert_eq!(client.line("AUTH secre"), wrong);
    assert_eq!(client.line("AUTH secret1"), wrong);
    assert_eq!(client.line("AUTH \"\""), wrong);
    assert_eq!(client.line("PING"), refused);
    assert_eq!(client.line("AUTH secret"), "OK");
    assert_eq!(client.line("SET a 1"), "OK");
    assert_eq!(client.line("AUTH wrong"), wrong);
    assert_eq!(client.line("GET a"), "\"1\"");
    // RESET takes the permission back.
    assert_eq!(client.line("RESET"), "RESET");
    assert_eq!(client.line("GET a"), refused);
    assert_eq!(client.line("AUTH default secret"), "OK");
    assert_eq!(client.line("GET a"), "\"1\"");
    let mut client = server.client();
    assert!(client.line("HELLO 3 AUTH default secret SETNAME me").starts_with("{\"server\": "));
    assert_eq!(client.line("CLIENT GETNAME"), "\"me\"");
    // A pipeline is not let through while it is being refused.
    let mut client = server.client();
    client.send(
        &[
            crate::common::request(&["SET", "a", "2"]),
            crate::common::request(&["AUTH", "secret"]),
            crate::common::request(&["GET", "a"]),
        ]
        .concat(),
    );
    assert_eq!(client.reply().to_string(), refused);
    assert_eq!(client.reply().to_string(), "OK");
    assert_eq!(client.reply().to_string(), "\"1\"");
    // QUIT is always allowed.
    let mut client = server.client();
    assert_eq!(client.line("QUIT"), "OK");
    client.assert_closed();
}
