//! Loop devices: a file as a block device (Linux 5.8).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4C07;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;

/// The device is freed when nothing has it open or mounted.
const AUTOCLEAR: u32 = 4;
/// The device does not keep a second copy of what it reads and writes in memory.
const DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const EMPTY: Info = Info {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// `struct loop_config`.
#[repr(C)]
struct Configuration {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

fn result(value: libc::c_int) -> io::Result<u32> {
    u32::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// The number of a free device. `control` is `/dev/loop-control`. Another program may take the device first.
pub fn free_number(control: &File) -> io::Result<u32> {
    // SAFETY: this call takes no argument.
    result(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })
}

/// Makes a free device show a file. It fails with EBUSY if another program was first.
pub fn configure(device: &File, file: &File, block_size: u32, direct_io: bool) -> io::Result<()> {
    let flags = if direct_io { AUTOCLEAR | DIRECT_IO } else { AUTOCLEAR };
    let fd = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
    let config = Configuration { fd, block_size, info: Info { flags, ..EMPTY }, reserved: [0; 8] };
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    result(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) }).map(drop)
}

/// The device and inode numbers of the file that a device shows. It fails with ENXIO if the device shows none.
pub fn backing_file(device: &File) -> io::Result<(u64, u64)> {
    let mut info = EMPTY;
    // SAFETY: the structure has the type that the call fills in, and outlives it.
    result(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) })?;
    Ok((info.device, info.inode))
}

/// Makes the device as large as its file is now.
pub fn follow_size(device: &File) -> io::Result<()> {
    // SAFETY: this call takes no argument.
    result(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY, 0) }).map(drop)
}
