//! Serves a database: `cargo run --release -p terrace-server --example serve -- DIR [PORT [THREADS]]`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use terrace::{Database, MapOptions};
use terrace_server::{Server, ServerOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("which directory?")?;
    let port: u16 = arguments.next().map_or(Ok(6379), |port| port.parse())?;
    let threads = arguments.next().map_or(Ok(0), |threads| threads.parse())?;
    let database = Arc::new(Database::open(dir, MapOptions::default())?);
    let options = ServerOptions {
        addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
        threads,
        ..ServerOptions::default()
    };
    let server = Server::start(database, options)?;
    println!("listening on {:?}", server.addresses().tcp);
    server.wait()?;
    Ok(())
}
