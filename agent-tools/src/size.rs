//! Sizes as people write and read them: `10k`, `1.2 KiB`.

/// The text is no size.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a size; write a whole number with or without a unit, such as 500, 10k, 5M or 1G")]
pub struct NotASize {
    text: String,
}

/// Reads a size. The units are powers of 1,024: `10k`, `10 KB` and `10KiB` are all 10,240 bytes.
pub fn parse(text: &str) -> Result<u64, NotASize> {
    let error = || NotASize { text: text.chars().take(40).collect() };
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return Err(error()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << (10 * power))).ok_or_else(error)
}

/// Shows a size in at most nine characters: `12 B`, `1.2 KiB`, `340 MiB`.
pub fn shown(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // The largest unit of which there is at least one; a little less than the next unit is shown as that one.
    let mut power = (bytes.ilog2() / 10) as usize;
    let mut tenths = rounded_tenths(bytes, power);
    if tenths >= 10_240 && power < units.len() {
        power += 1;
        tenths = rounded_tenths(bytes, power);
    }
    let unit = units[power - 1];
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", (tenths + 5) / 10)
    }
}

fn rounded_tenths(bytes: u64, power: usize) -> u128 {
    let unit = 1u128 << (10 * power);
    (u128::from(bytes) * 10 + unit / 2) / unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in
            [("0", 0), ("500", 500), ("10k", 10 << 10), ("5M", 5 << 20), (" 2 GiB ", 2 << 30), ("1kb", 1024)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "-1", "1.5M", "10x", "99999999999999999999", "99999999999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_with_two_or_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1290, "1.3 KiB"),
            (340 << 20, "340 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn a_size_is_short(bytes in any::<u64>()) {
            prop_assert!(shown(bytes).len() <= 9, "{}", shown(bytes));
        }
    }
}
