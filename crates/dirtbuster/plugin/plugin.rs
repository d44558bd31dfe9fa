//! The plug-in for QEMU's user-mode emulator: it writes every access to memory, fence, call and return to a pipe.
//!
//! It is compiled alone (see `build.rs`) into a shared library that the emulator loads, and has no dependencies. The
//! interface is version 1 of QEMU's plug-ins, of 7.2 and later, declared by hand below.
//!
//! Each virtual processor (a thread of the program) has a chunk of its own; whole chunks go to the pipe under a lock. A
//! child made by `fork` has the pipe too, so it compares its process number before it writes, and writes nothing.

#[path = "../src/wire.rs"]
#[allow(dead_code)]
mod wire;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::{Chunk, Raw};

/// An instruction of a block that is being translated.
#[repr(C)]
struct Insn {
    _opaque: [u8; 0],
}

/// A block that is being translated.
#[repr(C)]
struct Block {
    _opaque: [u8; 0],
}

type BlockTranslated = extern "C" fn(u64, *mut Block);
type Executed = extern "C" fn(c_uint, *mut c_void);
type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
type AtExit = extern "C" fn(u64, *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: BlockTranslated);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: Accessed,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(id: u64, callback: AtExit, data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    fn qemu_plugin_insn_data(insn: *const Insn) -> *const u8;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

const NO_REGISTERS: c_int = 0;
const READS_AND_WRITES: c_int = 3;

/// The version of the interface that this was written for.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Threads that are told apart.
const THREADS: usize = 1024;

struct Thread {
    chunk: Chunk,
    /// Instructions before the current block.
    before: u64,
    /// And with it.
    executed: u64,
}

struct Output {
    pipe: Option<File>,
    /// Where code lies that is known to the reader.
    images: Vec<(u64, u64)>,
}

static PROCESS: AtomicU32 = AtomicU32::new(0);
static OUTPUT: Mutex<Output> = Mutex::new(Output { pipe: None, images: Vec::new() });
static ALL: [Mutex<Thread>; THREADS] =
    [const { Mutex::new(Thread { chunk: Chunk::new(), before: 0, executed: 0 }) }; THREADS];

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_child() -> bool {
    std::process::id() != PROCESS.load(Relaxed)
}

fn send(bytes: &[u8]) {
    let mut output = lock(&OUTPUT);
    let failed = output.pipe.as_mut().is_some_and(|pipe| pipe.write_all(bytes).is_err());
    if failed {
        output.pipe = None;
    }
}

fn flush(number: usize, thread: &mut Thread) {
    if is_child() || thread.chunk.is_empty() {
        thread.chunk.clear();
        return;
    }
    let mut bytes = Vec::with_capacity(wire::BODY_BYTES + 64);
    thread.chunk.take(number as u32, &mut bytes);
    send(&bytes);
}

/// An instruction's address and its place in its block, as the data of its callbacks.
fn packed(ip: u64, place: usize) -> *mut c_void {
    std::ptr::without_provenance_mut((ip << 9 | place as u64 & 511) as usize)
}

fn event(number: c_uint, kind: u8, size: u32, address: u64, data: *mut c_void) {
    let Some(thread) = ALL.get(number as usize) else { return };
    let thread = &mut *lock(thread);
    let data = data.addr() as u64;
    let count = thread.before + (data & 511) + 1;
    if thread.chunk.push(&Raw { kind, size, count, ip: data >> 9, address }) {
        flush(number as usize, thread);
    }
}

extern "C" fn block_executed(number: c_uint, data: *mut c_void) {
    let Some(thread) = ALL.get(number as usize) else { return };
    let mut thread = lock(thread);
    thread.before = thread.executed;
    thread.executed += data.addr() as u64;
}

extern "C" fn accessed(number: c_uint, info: u32, address: u64, data: *mut c_void) {
    // SAFETY: `info` is what the emulator gave to this callback; both only compute with it.
    let (shift, is_store) =
        unsafe { (qemu_plugin_mem_size_shift(info), qemu_plugin_mem_is_store(info)) };
    let kind = if is_store { wire::WRITE } else { wire::READ };
    event(number, kind, 1 << shift.min(15), address, data);
}

extern "C" fn fence(number: c_uint, data: *mut c_void) {
    event(number, wire::FENCE, 0, 0, data);
}

extern "C" fn call(number: c_uint, data: *mut c_void) {
    event(number, wire::CALL, 0, 0, data);
}

extern "C" fn returned(number: c_uint, data: *mut c_void) {
    event(number, wire::RETURN, 0, 0, data);
}

/// What an instruction is beside its accesses.
fn special(code: &[u8]) -> Option<Executed> {
    let mut locks = false;
    let mut at = 0;
    while let Some(prefix) = code.get(at) {
        match prefix {
            0xf0 => locks = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f => {}
            _ => break,
        }
        at += 1;
    }
    let rest = code.get(at..)?;
    let modrm = |byte: u8| (byte >> 6, byte >> 3 & 7);
    match rest {
        _ if locks => Some(fence),
        [0x0f, 0xae, of, ..] => matches!(modrm(*of), (3, 5..=7)).then_some(fence as Executed),
        [0x86 | 0x87, of, ..] => (modrm(*of).0 != 3).then_some(fence as Executed),
        [0xe8, ..] => Some(call),
        [0xff, of, ..] => (modrm(*of).1 == 2).then_some(call as Executed),
        [0xc2 | 0xc3, ..] => Some(returned),
        _ => None,
    }
}

/// Tells the reader where code lies, when some is translated that lies elsewhere.
fn tell_images(ip: u64) {
    if is_child() || lock(&OUTPUT).images.iter().any(|(start, end)| ip >= *start && ip < *end) {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut bytes = Vec::new();
    let mut known = Vec::new();
    for line in maps.lines() {
        let mut words = line.splitn(6, ' ');
        let range = words.next().and_then(|range| range.split_once('-'));
        let (Some((start, end)), Some(offset)) = (range, words.nth(1)) else { continue };
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (start, end) = (number(start), number(end));
        let path = words.nth(2).unwrap_or_default().trim_start();
        if path.starts_with('/') {
            wire::image(start, end, number(offset), path.as_bytes(), &mut bytes);
        }
        if path.starts_with('/') || ip >= start && ip < end {
            known.push((start, end));
        }
    }
    lock(&OUTPUT).images = known;
    send(&bytes);
}

extern "C" fn translated(_: u64, block: *mut Block) {
    // SAFETY: the emulator lends `block` and its instructions for the length of this call, and an instruction's data
    // has as many bytes as it says. The callbacks are functions of this library, never unloaded; their data are
    // numbers that nobody follows as pointers.
    unsafe {
        let instructions = qemu_plugin_tb_n_insns(block);
        let count = std::ptr::without_provenance_mut(instructions);
        qemu_plugin_register_vcpu_tb_exec_cb(block, block_executed, NO_REGISTERS, count);
        for place in 0..instructions {
            let insn = qemu_plugin_tb_get_insn(block, place);
            let ip = qemu_plugin_insn_vaddr(insn);
            tell_images(ip);
            let code = qemu_plugin_insn_data(insn);
            let code = std::slice::from_raw_parts(code, qemu_plugin_insn_size(insn));
            let data = packed(ip, place);
            if let Some(callback) = special(code) {
                qemu_plugin_register_vcpu_insn_exec_cb(insn, callback, NO_REGISTERS, data);
            }
            qemu_plugin_register_vcpu_mem_cb(insn, accessed, NO_REGISTERS, READS_AND_WRITES, data);
        }
    }
}

extern "C" fn at_exit(_: u64, _: *mut c_void) {
    for (number, thread) in ALL.iter().enumerate() {
        flush(number, &mut lock(thread));
    }
}

/// Called once by the emulator; `pipe=PATH` says where to write.
///
/// # Safety
/// `arguments` are `count` pointers to strings that end in 0, as the emulator passes them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let path = (0..usize::try_from(count).unwrap_or(0)).find_map(|at| {
        // SAFETY: the caller's promise.
        let argument = unsafe { CStr::from_ptr(*arguments.add(at)) };
        argument.to_str().ok()?.strip_prefix("pipe=")
    });
    let Some(pipe) = path.and_then(|path| File::options().write(true).open(path).ok()) else {
        return 1;
    };
    PROCESS.store(std::process::id(), Relaxed);
    lock(&OUTPUT).pipe = Some(pipe);
    // SAFETY: `id` is this plug-in's, and the callbacks are functions of this library.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, at_exit, std::ptr::null_mut());
    }
    0
}
