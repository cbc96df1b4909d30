//! The host's name service (`getaddrinfo`), with the name that an alias stands for. The standard library's call gives only addresses.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// What the name service knows of a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Each address once for every time it was answered.
    pub addresses: Vec<IpAddr>,
    /// The name at the end of all aliases, which may be the asked one.
    pub canonical: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFound {
    NoSuchName,
    /// It could not be asked, or did not answer.
    Failed,
}

/// Asks for the addresses of a name. This can take long.
pub fn look_up(name: &str) -> Result<Found, NotFound> {
    let name = CString::new(name).map_err(|_| NotFound::NoSuchName)?;
    // SAFETY: all zeros are a valid value of this structure of numbers and pointers.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_flags = libc::AI_CANONNAME;
    // Otherwise each address comes once for each kind of socket.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: the name ends with NUL; the hints and the place of the list live during the call.
    match unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut list) } {
        0 => {}
        libc::EAI_NONAME | libc::EAI_NODATA => return Err(NotFound::NoSuchName),
        _ => return Err(NotFound::Failed),
    }
    let mut found = Found { addresses: Vec::new(), canonical: None };
    let mut entry = list;
    // SAFETY: the list is a chain of valid entries with a null at its end, and is freed only below.
    while let Some(info) = unsafe { entry.as_ref() } {
        if found.canonical.is_none() && !info.ai_canonname.is_null() {
            // SAFETY: a name that is there ends with NUL.
            found.canonical = Some(unsafe { CStr::from_ptr(info.ai_canonname) }.to_bytes().to_vec());
        }
        // SAFETY: the address of an entry has the type that its family says.
        found.addresses.extend(unsafe { address_of(info) });
        entry = info.ai_next;
    }
    // SAFETY: the list comes from `getaddrinfo`, and nothing borrowed from it is left.
    unsafe { libc::freeaddrinfo(list) };
    Ok(found)
}

/// # Safety
/// The address of the entry must have the type that its family says.
unsafe fn address_of(info: &libc::addrinfo) -> Option<IpAddr> {
    match info.ai_family {
        libc::AF_INET => {
            // SAFETY: as the caller promises; it is read as bytes, whatever its alignment.
            let address = unsafe { info.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { info.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_found_as_the_host_knows_them() {
        let found = look_up("203.0.113.7").unwrap();
        assert_eq!(found.addresses, [IpAddr::from([203, 0, 113, 7])]);
        assert_eq!(look_up("::1").unwrap().addresses, [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        assert_eq!(look_up("a\0b"), Err(NotFound::NoSuchName));
        assert_eq!(look_up(""), Err(NotFound::NoSuchName));
    }
}
