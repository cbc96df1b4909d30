//! The capability bounding set, which is what a process and everything it starts can ever have, and the user that a process has its
//! capabilities as.

use std::io;

use nix::unistd::{Uid, seteuid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities_secure_bits,
};

/// Removes every capability except `kept` from the bounding set, and clears the ambient set. The process keeps the
/// capabilities it has now until its next exec.
pub fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no capability with this number, and none with a higher one.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(clear_ambient_capability_set()?)
}

/// Changes the effective user, and keeps the capabilities that root has. A user namespace that is made next belongs to `uid`, and starts
/// with the usual rules for capabilities again.
pub fn act_as(uid: u32) -> io::Result<()> {
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    Ok(seteuid(Uid::from_raw(uid))?)
}
