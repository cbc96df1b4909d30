//! Stack traces of Python, Rust, Go, Java and JavaScript: frames of libraries become a count.
//!
//! Promises: the message of a trace, its causes and the frames of the program itself stay. A frame that is in doubt stays. It holds one
//! number and one flag, no lines.

#[derive(Default)]
pub(crate) struct Frames {
    hidden: u64,
    /// The previous frame was hidden, and so are the lines that belong to it.
    is_inside: bool,
}

/// What happens with a line of a trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Show,
    Hide,
}

impl Frames {
    pub(crate) fn line(&mut self, line: &str) -> Frame {
        let indent = line.len() - line.trim_ascii_start().len();
        let text = line.trim_ascii_start();
        if indent == 0 && !is_go_library(text) {
            self.is_inside = false;
            return Frame::Show;
        }
        if self.is_inside && belongs_to_frame(line, text, indent) {
            return Frame::Hide;
        }
        self.is_inside = is_library_frame(text);
        if self.is_inside {
            self.hidden += 1;
            return Frame::Hide;
        }
        Frame::Show
    }

    /// The number of frames that were hidden since the last call.
    pub(crate) fn take_hidden(&mut self) -> u64 {
        std::mem::take(&mut self.hidden)
    }
}

/// The source line of a Python frame, the `at` line of a Rust frame, the file line of a Go frame.
fn belongs_to_frame(line: &str, text: &str, indent: usize) -> bool {
    if let Some(place) = text.strip_prefix("at ") {
        return indent >= 10 && place.starts_with(['/', '.']);
    }
    let is_python_source =
        indent >= 4 && !text.starts_with("File \"") && !text.starts_with("at ") && !line.starts_with('\t');
    let is_go_place = line.starts_with('\t') && text.starts_with('/') && text.contains(".go:");
    (is_python_source && !starts_with_number(text)) || is_go_place
}

fn starts_with_number(text: &str) -> bool {
    text.split_once(':')
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_library_frame(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix("File \"") {
        let path = rest.split('"').next().unwrap_or_default();
        return ["site-packages/", "/lib/python3", "<frozen "].iter().any(|part| path.contains(part));
    }
    if let Some(place) = text.strip_prefix("at ") {
        let places = ["node:internal", "(node:", "node_modules/", "/rustc/"];
        let packages =
            ["java.base/", "java.", "jdk.internal.", "sun.", "org.junit.", "org.apache.maven.", "async node:", "node:"];
        return places.iter().any(|part| place.contains(part)) || packages.iter().any(|start| place.starts_with(start));
    }
    is_rust_library(text) || is_go_library(text)
}

fn is_rust_library(text: &str) -> bool {
    if !starts_with_number(text) {
        return false;
    }
    let name = text.split_once(':').map_or("", |(_, name)| name.trim_ascii_start());
    // A full backtrace has the address before the name.
    let name = name.split_once(" - ").map_or(name, |(_, name)| name);
    let name = name.trim_start_matches(['<', '&', '(']);
    let starts = [
        "std::",
        "core::",
        "alloc::",
        "test::",
        "rust_begin_unwind",
        "__rust",
        "_start",
        "__libc",
        "fn()",
        "main",
        "start_thread",
        "clone",
        "dyn ",
        "std[",
        "core[",
        "alloc[",
    ];
    starts.iter().any(|start| name.starts_with(start)) && !name.starts_with("main::") || name == "_"
}

fn is_go_library(text: &str) -> bool {
    let text = text.strip_prefix("created by ").unwrap_or(text);
    let starts = ["runtime.", "testing.", "panic(", "runtime/", "internal/runtime"];
    starts.iter().any(|start| text.starts_with(start))
        && text.ends_with([')', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(trace: &str) -> Vec<String> {
        let mut frames = Frames::default();
        let mut out = Vec::new();
        for line in trace.lines() {
            if frames.line(line) == Frame::Show {
                match frames.take_hidden() {
                    0 => {}
                    hidden => out.push(format!("-{hidden}")),
                }
                out.push(line.trim().to_owned());
            }
        }
        out
    }

    #[test]
    fn python_frames_of_libraries_go_with_their_source() {
        let trace = "Traceback (most recent call last):\n  File \"app.py\", line 3, in f\n    json.loads(x)\n  File \"/usr/lib/python3.11/json/d.py\", line 9, in d\n    raise\n    ^^^^^\nJSONDecodeError: bad";
        assert_eq!(
            shown(trace),
            [
                "Traceback (most recent call last):",
                "File \"app.py\", line 3, in f",
                "json.loads(x)",
                "-1",
                "JSONDecodeError: bad"
            ]
        );
    }

    #[test]
    fn java_and_javascript_frames_of_the_program_stay() {
        let java = "Exception in thread \"main\" X: y\n\tat java.base/java.lang.Integer.parse(I.java:1)\n\tat Shop.run(Shop.java:9)\nCaused by: Z";
        assert_eq!(
            shown(java),
            ["Exception in thread \"main\" X: y", "-1", "at Shop.run(Shop.java:9)", "Caused by: Z"]
        );
        let node = "Error: x\n    at f (/app/a.js:1:2)\n    at Module._compile (node:internal/x:1:1)\nend";
        assert_eq!(shown(node), ["Error: x", "at f (/app/a.js:1:2)", "-1", "end"]);
    }

    #[test]
    fn rust_and_go_frames_of_the_runtime_go_with_their_place() {
        let rust = "stack backtrace:\n   0: core::panicking::panic\n             at /rustc/1/a.rs:1:1\n   1: app::pick\n             at ./src/main.rs:3:5\n   2: std::rt::main\nnote: x";
        assert_eq!(shown(rust), ["stack backtrace:", "-1", "1: app::pick", "at ./src/main.rs:3:5", "-1", "note: x"]);
        let go = "goroutine 1 [running]:\npanic({0x1, 0x2})\n\t/usr/go/panic.go:1 +0x1\nmain.work(0x1)\n\t/app/main.go:11 +0x5";
        assert_eq!(shown(go), ["goroutine 1 [running]:", "-1", "main.work(0x1)", "/app/main.go:11 +0x5"]);
    }
}
