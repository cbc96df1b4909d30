//! Content addresses: `sha256:` and 64 hexadecimal digits. No other algorithm is in use at registries.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const HEX_DIGITS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The 64 digits after the name of the algorithm.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    /// The first 12 digits, as people compare them.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }

    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix(PREFIX).ok_or_else(|| format!("{text:?} is not a sha256 digest"))?;
        let is_hex =
            hex.len() == HEX_DIGITS && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if is_hex {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text:?} is not sha256: and 64 lower-case hexadecimal digits"))
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes a digest of bytes that come in pieces.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        let hex: String = self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Digest(format!("{PREFIX}{hex}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_in_lower_case_is_a_digest() {
        let good = Digest::of(b"abc");
        assert_eq!(good.to_string(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(good.short(), "ba7816bf8f01");
        assert_eq!(good.to_string().parse(), Ok(good.clone()));
        for bad in
            ["", "sha256:", "sha512:00", &good.to_string().to_uppercase(), &format!("{good}0"), &good.to_string()[..70]]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad:?}");
        }
        assert!(format!("sha256:{}", "../".repeat(22)[..64].to_owned()).parse::<Digest>().is_err());
    }
}
