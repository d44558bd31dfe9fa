//! TLS: the server's certificate, and a session over a non-blocking socket.

use crate::options::{ServerError, TlsOptions};
use crate::resp::Output;
use rustix::fd::OwnedFd;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Plaintext handed to the session at a time: one TLS record.
const RECORD_BYTES: usize = 16 << 10;

/// Reads the PEM files that `options` name.
pub(crate) fn server_config(options: &TlsOptions) -> Result<Arc<ServerConfig>, ServerError> {
    let chain = certificates(&options.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .map_err(|cause| refused(&options.key, &cause))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|cause| refused(&options.certificate, &cause))?;
    let builder = match &options.client_authorities {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(file)? {
                roots.add(authority).map_err(|cause| refused(file, &cause))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|cause| refused(file, &cause))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(chain, key)
        .map(Arc::new)
        .map_err(|cause| refused(&options.certificate, &cause))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let all = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| refused(file, &cause))?;
    match all.is_empty() {
        true => Err(refused(file, &"no certificate in it")),
        false => Ok(all),
    }
}

fn refused(file: &Path, cause: &dyn std::fmt::Display) -> ServerError {
    ServerError::Tls { file: file.into(), cause: cause.to_string() }
}

/// A socket as rustls wants to see it.
struct Plain<'a>(&'a OwnedFd);

impl Read for Plain<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(self.0, &mut *bytes))?)
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        Ok(rustix::io::retry_on_intr(|| rustix::net::send(self.0, bytes, flags))?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One client's TLS session.
pub(crate) struct Session(ServerConnection);

impl Session {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        ServerConnection::new(config).map(Session)
    }

    pub(crate) fn handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Appends decrypted bytes until the socket has no more or `bytes` has grown by `most`.
    /// The first result is how many came; the second, whether there may be more. `Ok((0, _))`
    /// is the end of the stream, an error of kind `WouldBlock` that nothing came.
    pub(crate) fn read(
        &mut self,
        socket: &OwnedFd,
        bytes: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<(usize, bool)> {
        let before = bytes.len();
        loop {
            let came = bytes.len() - before;
            if came >= most {
                return Ok((came, true));
            }
            match self.read_record(socket, bytes) {
                Ok(0) => return Ok((came, came > 0)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && came > 0 => {
                    return Ok((came, false));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn read_record(&mut self, socket: &OwnedFd, bytes: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let start = bytes.len();
            bytes.resize(start + RECORD_BYTES, 0);
            let result = self.0.reader().read(&mut bytes[start..]);
            bytes.truncate(start + *result.as_ref().unwrap_or(&0));
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if self.0.read_tls(&mut Plain(socket))? == 0 {
                return Ok(0);
            }
            if let Err(error) = self.0.process_new_packets() {
                // The alert that tells the peer why; if it cannot be sent, the close tells.
                let _ = self.0.write_tls(&mut Plain(socket));
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Encrypts and sends `out`, and whatever the handshake has to send. True: all is sent.
    pub(crate) fn send(&mut self, socket: &OwnedFd, out: &mut Output) -> io::Result<bool> {
        loop {
            while self.0.wants_write() {
                match self.0.write_tls(&mut Plain(socket)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            if out.is_empty() {
                return Ok(true);
            }
            let unsent = out.unsent();
            let taken = self.0.writer().write(&unsent[..unsent.len().min(RECORD_BYTES)])?;
            if taken == 0 {
                return Ok(false);
            }
            out.advance(taken);
        }
    }

    /// Something waits to be sent.
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn close(&mut self, socket: &OwnedFd) {
        self.0.send_close_notify();
        let _ = self.0.write_tls(&mut Plain(socket));
    }
}
