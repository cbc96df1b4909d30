//! Parses the `Range` header: one part of a file, or an error.

use hyper::header::{HeaderMap, RANGE};
use shared_protocol::query::whole_number;

use crate::api::error::ApiError;
use crate::service::files::ByteRange;

pub fn byte_range(headers: &HeaderMap) -> Result<Option<ByteRange>, ApiError> {
    let Some(value) = headers.get(RANGE) else { return Ok(None) };
    value.to_str().ok().and_then(parse).map(Some).ok_or_else(|| {
        ApiError::invalid("the Range header must be one range of bytes: bytes=a-b, bytes=a- or bytes=-n")
    })
}

fn parse(value: &str) -> Option<ByteRange> {
    let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first, last) {
        ("", "") => None,
        ("", count) => whole_number(count.as_bytes()).map(ByteRange::Last),
        (first, "") => whole_number(first.as_bytes()).map(ByteRange::From),
        (first, last) => {
            let (first, last) = (whole_number(first.as_bytes())?, whole_number(last.as_bytes())?);
            (first <= last).then_some(ByteRange::Between(first, last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_is_one_part_or_an_error() {
        assert_eq!(parse("bytes=0-9"), Some(ByteRange::Between(0, 9)));
        assert_eq!(parse("bytes=5-"), Some(ByteRange::From(5)));
        assert_eq!(parse(" bytes=-5"), Some(ByteRange::Last(5)));
        for refused in ["bytes=9-0", "bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=+1-2", "bytes=a-b", "0-1"] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }

    proptest! {
        #[test]
        fn no_range_makes_it_panic(value: String) {
            let _ = parse(&value);
            let _ = parse(&format!("bytes={value}"));
        }
    }
}
