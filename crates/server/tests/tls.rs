//! TLS on its own port, with a certificate made for the occasion.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, PATIENCE, Reply, TestServer, info, options, request};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use terrace_server::{Server, ServerOptions, TlsOptions};

/// An authority, a server certificate below it, and a client certificate.
struct Papers {
    dir: tempfile::TempDir,
    roots: RootCertStore,
    client: (CertificateDer<'static>, Vec<u8>),
}

impl Papers {
    fn new() -> Papers {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(vec![name.to_string()])
                .unwrap()
                .signed_by(&key, &authority)
                .unwrap();
            (certificate, key)
        };
        let (certificate, key) = signed("localhost");
        std::fs::write(dir.path().join("server.pem"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("server.key"), key.serialize_pem()).unwrap();
        std::fs::write(dir.path().join("authority.pem"), authority.pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let (certificate, key) = signed("client");
        Papers { dir, roots, client: (certificate.der().clone(), key.serialize_der()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self) -> TlsOptions {
        TlsOptions {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            client_authorities: None,
        }
    }

    fn connect(
        &self,
        server: &TestServer,
        with_certificate: bool,
    ) -> Client<StreamOwned<ClientConnection, TcpStream>> {
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(self.roots.clone());
        let config = match with_certificate {
            false => builder.with_no_client_auth(),
            true => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.client.1.clone()));
                builder.with_client_auth_cert(vec![self.client.0.clone()], key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(server.server.addresses().tls.unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::over(StreamOwned::new(session, socket))
    }
}

fn serve(tls: TlsOptions) -> TestServer {
    TestServer::with(ServerOptions { tls: Some(tls), ..options() })
}

#[test]
fn commands_over_tls() {
    let papers = Papers::new();
    let server = serve(papers.options());
    let mut client = papers.connect(&server, false);
    assert_eq!(client.line("PING"), "PONG");
    assert_eq!(client.line("SET a 1"), "OK");
    assert_eq!(server.client().line("GET a"), "\"1\"");
    // Values larger than a record, and than every buffer on the way.
    for size in [10_000, 16_384, 100_000, 3 << 20] {
        let value: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        assert_eq!(client.call(&[b"SET", &b"k"[..], &value]), Reply::Simple("OK".into()));
        assert!(client.call(&["GET", "k"]) == Reply::Bulk(value), "{size}");
    }
    // Pipelines, sent before anything is read.
    client.send(&request(&["INCR", "n"]).repeat(5000));
    client.stream.flush().unwrap();
    (1..=5000).for_each(|i| assert_eq!(client.reply(), Reply::Integer(i)));
    // Many at once, on both loops.
    let mut clients: Vec<_> = (0..20).map(|_| papers.connect(&server, false)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.line("GET a"), "\"1\""));
    assert_eq!(clients[0].line("QUIT"), "OK");
    clients[0].assert_closed();
}

#[test]
fn clear_text_on_the_tls_port_is_refused() {
    let papers = Papers::new();
    let server = serve(papers.options());
    let mut client = Client::connect(server.server.addresses().tls.unwrap());
    client.send(b"PING\r\n");
    let answer = client.rest();
    assert!(!answer.starts_with(b"+PONG"), "{:?}", answer.escape_ascii().to_string());
    // And a handshake that never comes does not keep the server from others.
    let _silent = TcpStream::connect(server.server.addresses().tls.unwrap()).unwrap();
    assert_eq!(papers.connect(&server, false).line("PING"), "PONG");
}

#[test]
fn client_certificates_can_be_required() {
    let papers = Papers::new();
    let server = serve(TlsOptions {
        client_authorities: Some(papers.path("authority.pem")),
        ..papers.options()
    });
    assert_eq!(papers.connect(&server, true).line("PING"), "PONG");
    let mut without = papers.connect(&server, false);
    let outcome = without
        .stream
        .write_all(&request(&["PING"]))
        .and_then(|()| std::io::Read::read(&mut without.stream, &mut [0; 64]));
    assert!(!matches!(outcome, Ok(n) if n > 0), "{outcome:?}");
    // The server hears of the two that have left when it next looks at them.
    let mut client = server.client();
    let mut connected = String::new();
    for _ in 0..6_000 {
        connected = info(&mut client, "connected_clients");
        if connected == "1" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{connected} clients are connected");
}

#[test]
fn bad_papers_are_named() {
    let papers = Papers::new();
    let dir = tempfile::tempdir().unwrap();
    let database =
        Arc::new(terrace::Database::open(dir.path(), terrace::MapOptions::default()).unwrap());
    std::fs::write(papers.path("empty.pem"), "").unwrap();
    let good = papers.options();
    let cases = [
        (TlsOptions { certificate: papers.path("nothing.pem"), ..good.clone() }, "nothing.pem"),
        (TlsOptions { certificate: papers.path("empty.pem"), ..good.clone() }, "empty.pem"),
        (TlsOptions { key: papers.path("server.pem"), ..good.clone() }, "server.pem"),
        (TlsOptions { client_authorities: Some(papers.path("empty.pem")), ..good }, "empty.pem"),
    ];
    for (tls, file) in cases {
        let error =
            Server::start(Arc::clone(&database), ServerOptions { tls: Some(tls), ..options() })
                .err()
                .unwrap()
                .to_string();
        assert!(error.starts_with("TLS: ") && error.contains(file), "{error}");
    }
}
