//! A file, and the checksum of what went through it.

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use crc_fast::Digest;
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

/// The checksum of what is written to, or read from, `F`.
pub(super) struct Summed<F> {
    file: F,
    sum: Sum,
}

/// What it is so far.
#[derive(Clone)]
pub(super) struct Sum(Rc<RefCell<Digest>>);

impl Sum {
    pub(super) fn finish(&self) -> u32 {
        // The algorithm yields 32 bits in a 64-bit word.
        self.0.borrow().finalize() as u32
    }
}

/// Of bytes that are there as a whole.
pub(super) fn of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

impl<F> Summed<F> {
    pub(super) fn new(file: F) -> (Summed<F>, Sum) {
        let sum = Sum(Rc::new(RefCell::new(Digest::new(Crc32Iscsi))));
        (Summed { file, sum: sum.clone() }, sum)
    }
}

impl<F: Write> Write for Summed<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.0.borrow_mut().update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl<F: Read> Read for Summed<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.sum.0.borrow_mut().update(&into[..read]);
        Ok(read)
    }
}
