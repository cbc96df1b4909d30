//! The tokens of links: a signature of the session, the port and the time of expiry. Pure.
//!
//! Nothing is stored for a link: whoever has the daemon's link key can check it, so links survive a restart of the daemon. A link
//! ends with its time, with its session, whose id is never given again, or with the next generation of links to its port.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::PortAddress;

pub const KEY_BYTES: usize = 32;

/// What the signature is about, so that it can be taken for nothing else that a key might sign.
const PURPOSE: &str = "cove port link 1";

/// The size of a block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// The daemon's key for links. It is a secret, and is never printed.
#[derive(Clone)]
pub struct LinkKey([u8; KEY_BYTES]);

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkKey(…)")
    }
}

/// The token of one link: the seconds of its expiry and the signature. It is a secret, and is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkToken {
    expires: u64,
    signature: [u8; 32],
}

impl std::fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkToken(…)")
    }
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefused {
    #[error("the link is not valid for this address")]
    Wrong,
    #[error("the link has expired")]
    Expired,
}

impl LinkToken {
    /// The token as it is in an address: 64 hexadecimal digits after the time.
    pub fn to_text(&self) -> String {
        let signature: String = self.signature.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{signature}", self.expires)
    }

    fn parse(text: &str) -> Option<Self> {
        let (expires, hex) = text.split_once('-')?;
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return None;
        }
        let mut signature = [0; 32];
        for (number, byte) in signature.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * number..2 * number + 2], 16).ok()?;
        }
        let is_plain = expires.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { expires: expires.parse().ok().filter(|_| is_plain)?, signature })
    }

    pub fn expires(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.expires)
    }
}

impl LinkKey {
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }

    /// The token for a port until a time, which is rounded up to a second.
    pub fn token(&self, address: &PortAddress, generation: u64, expires: SystemTime) -> LinkToken {
        let since = expires.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = since.as_secs() + u64::from(since.subsec_nanos() > 0);
        LinkToken { expires, signature: self.sign(address, generation, expires) }
    }

    /// How long a token is still good for this port. The signature is compared in constant time, and before the expiry is
    /// looked at.
    pub fn check(
        &self,
        address: &PortAddress,
        generation: u64,
        token: &str,
        now: SystemTime,
    ) -> Result<Duration, LinkRefused> {
        let token = LinkToken::parse(token).ok_or(LinkRefused::Wrong)?;
        let signed = self.mac(address, generation, token.expires);
        signed.verify_slice(&token.signature).map_err(|_| LinkRefused::Wrong)?;
        let left = token.expires().duration_since(now).unwrap_or_default();
        if left.is_zero() { Err(LinkRefused::Expired) } else { Ok(left) }
    }

    fn sign(&self, address: &PortAddress, generation: u64, expires: u64) -> [u8; 32] {
        self.mac(address, generation, expires).finalize().into_bytes().into()
    }

    fn mac(&self, address: &PortAddress, generation: u64, expires: u64) -> Hmac<Sha256> {
        // No part can contain the separator, so two different links never have the same text. The first generation has the text
        // of links that were made before there were generations.
        let mut text = format!("{PURPOSE}\n{}\n{}\n{expires}", address.session, address.port);
        if generation > 0 {
            text.push_str(&format!("\n{generation}"));
        }
        // HMAC fills a short key up with zeros. A key of a whole block cannot have a wrong length.
        let mut block = [0; BLOCK_BYTES];
        block[..KEY_BYTES].copy_from_slice(&self.0);
        Hmac::<Sha256>::new(&block.into()).chain_update(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shared_protocol::SessionId;

    use super::super::Port;
    use super::*;

    fn address(session: &str, port: &str) -> PortAddress {
        PortAddress { session: SessionId::new(session).unwrap(), port: Port::parse(port).unwrap() }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// The token of an earlier version, which links in use have.
    #[test]
    fn a_link_of_the_first_generation_has_the_signature_that_it_always_had() {
        let token = LinkKey::new([7; 32]).token(&address("7183cb80-d6c", "3000"), 0, at(1000)).to_text();
        assert_eq!(token, "1000-cc67bf7e9384c0fb003524375abb5c2e9981ee7c5fbe8cb68881da9928712701");
    }

    #[test]
    fn a_token_is_not_good_in_another_generation() {
        let (key, mine) = (LinkKey::new([7; 32]), address("7183cb80-d6c", "3000"));
        for made in 0..3 {
            let token = key.token(&mine, made, at(1000)).to_text();
            for now in 0..3 {
                let checked = key.check(&mine, now, &token, at(990));
                assert_eq!(checked.is_ok(), made == now, "{made} {now}");
            }
        }
    }

    #[test]
    fn a_token_is_good_for_its_port_of_its_session_until_it_expires() {
        let (key, mine) = (LinkKey::new([7; 32]), address("7183cb80-d6c", "3000"));
        let token = key.token(&mine, 0, at(1000)).to_text();
        assert_eq!(key.check(&mine, 0, &token, at(990)), Ok(Duration::from_secs(10)));
        assert_eq!(key.check(&mine, 0, &token, at(1000)), Err(LinkRefused::Expired));
        assert_eq!(key.check(&mine, 0, &token, at(5000)), Err(LinkRefused::Expired));
        for other in [address("7183cb80-d6c", "3001"), address("7183cb80-d6d", "3000"), address("7183cb80-d6c", "300")]
        {
            assert_eq!(key.check(&other, 0, &token, at(990)), Err(LinkRefused::Wrong), "{other:?}");
        }
        assert_eq!(LinkKey::new([8; 32]).check(&mine, 0, &token, at(990)), Err(LinkRefused::Wrong));
        let later = token.replacen("1000-", "2000-", 1);
        assert_eq!(key.check(&mine, 0, &later, at(990)), Err(LinkRefused::Wrong));
    }

    #[test]
    fn neither_key_nor_token_can_be_printed() {
        let key = LinkKey::new([0xab; 32]);
        let shown = format!("{key:?} {:?}", key.token(&address("s", "1"), 0, at(1)));
        assert_eq!(shown, "LinkKey(…) LinkToken(…)");
    }

    proptest! {
        #[test]
        fn no_other_text_is_a_token(text in "[0-9a-f-]{0,80}|.{0,80}") {
            prop_assert_eq!(LinkKey::new([7; 32]).check(&address("s", "1"), 0, &text, at(0)), Err(LinkRefused::Wrong));
        }

        #[test]
        fn a_token_with_one_changed_character_is_refused(place in 0usize..75, with in "[0-9a-f]") {
            let (key, mine) = (LinkKey::new([7; 32]), address("s", "1"));
            let token = key.token(&mine, 0, at(1_000_000_000)).to_text();
            let mut changed = token.clone();
            changed.replace_range(place..place + 1, &with);
            prop_assume!(changed != token);
            prop_assert!(key.check(&mine, 0, &changed, at(0)).is_err());
        }
    }
}
