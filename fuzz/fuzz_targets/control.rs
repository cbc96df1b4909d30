//! The parser of what bash reports: any bytes, cut anywhere, are survived, and a record behind them is found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runner::shell::control::{Parser, Record};

fuzz_target!(|bytes: &[u8]| {
    let mut parser = Parser::default();
    for chunk in bytes.chunks(7) {
        parser.feed(chunk, |_| {});
    }
    // Two: the garbage may have left the parser waiting for the directory of a record of its own.
    let mut found = false;
    for _ in 0..2 {
        parser.feed(b"\0D nonce 3 1\0/dir\0", |record| {
            found |= record
                == Record::Done { nonce: "nonce".to_owned(), status: 3, begun: true, cwd: b"/dir".to_vec() };
        });
    }
    assert!(found);
});
