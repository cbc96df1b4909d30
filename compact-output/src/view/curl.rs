//! curl and wget: the progress meter and the handshake go; status, headers, errors and the body stay. A body of JSON is joined.

use super::json::Json;
use super::{Reading, View};
use crate::out::Out;
use crate::words::{Weight, weight_of};

#[derive(Default)]
pub(crate) struct Curl {
    json: Json,
}

impl View for Curl {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        if is_meter(line) || is_dots(line) {
            return Reading::Taken;
        }
        if line.starts_with("curl: (") {
            out.failure(line);
            return Reading::Taken;
        }
        let is_chatter = [
            "*   Trying ",
            "* Connected to ",
            "* Connection #",
            "* TLS",
            "* ALPN",
            "* SSL",
            "* Mark bundle",
            "* upload completely",
            "* Request completely",
            "{ [",
            "} [",
        ];
        let is_chatter = is_chatter.iter().any(|start| line.starts_with(start)) && weight_of(line) != Weight::Failure;
        if is_chatter || matches!(line, ">" | "<" | "*") {
            return Reading::Taken;
        }
        self.json.line(line, out)
    }

    fn finish(&mut self, exit_code: Option<i32>, out: &mut Out) {
        self.json.finish(exit_code, out);
    }

    fn held_bytes(&self) -> usize {
        self.json.held_bytes()
    }
}

/// The table that curl draws while it waits.
fn is_meter(line: &str) -> bool {
    if line.starts_with("  % Total    % Received") || line.trim_ascii_start().starts_with("Dload  Upload") {
        return true;
    }
    let words: Vec<&str> = line.split_ascii_whitespace().take(13).collect();
    let is_value = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit() || b".:-kMGT".contains(&byte));
    words.len() == 12 && words.iter().all(is_value) && words.iter().filter(|word| word.contains(':')).count() >= 3
        // The last state of a download says how much came.
        && words.first() != Some(&"100")
}

/// ` 3050K .......... ..........  10% 20.0M 1s`
fn is_dots(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next().is_some_and(|word| word.ends_with('K'))
        && words.next().is_some_and(|word| word.bytes().all(|byte| byte == b'.'))
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn the_meter_goes_and_the_error_comes_first() {
        let text = compact(
            "curl x",
            "  % Total    % Received % Xferd  Average Speed\n                                 Dload  Upload   Total\n  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0\ncurl: (7) Failed to connect to x port 80\n",
        );
        assert_eq!(text, "curl: (7) Failed to connect to x port 80\n");
    }

    #[test]
    fn a_handshake_that_fails_stays() {
        assert_eq!(
            compact("curl -v x", "* SSL certificate problem: unable to get issuer\n"),
            "* SSL certificate problem: unable to get issuer\n"
        );
    }

    #[test]
    fn status_headers_and_body_stay() {
        let text = compact(
            "curl -v x",
            "*   Trying 1.2.3.4:80...\n> GET / HTTP/1.1\n>\n< HTTP/1.1 404 Not Found\n<\n{\"error\": \"no\"}\n",
        );
        assert_eq!(text, "> GET / HTTP/1.1\n< HTTP/1.1 404 Not Found\n{\"error\": \"no\"}\n");
    }
}
