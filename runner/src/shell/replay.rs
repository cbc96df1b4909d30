//! Removes what a terminal answers from output that is shown a second time.
//!
//! Programs ask the terminal for its cursor, colours and abilities, and the terminal types the answer. If such a query is
//! replayed to a person who attaches, their terminal answers again, and the answer lands in whatever runs now: `vim` leaves
//! `2RR84;0;0c` in the shell that started it. So a replay has no queries; live output is never changed.
//!
//! The filter removes complete queries and nothing else. It understands the seven-bit forms of ECMA-48 and xterm, which is what
//! programs send in UTF-8. A sequence that the replay's beginning has cut is plain text to every terminal, and one that its end has
//! cut stays: the rest of it is live.

const BEL: u8 = 0x07;
const ENQ: u8 = 0x05;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;

/// The reports of `CSI Ps t`: state, position and size of the window and the screen, and its titles.
const WINDOW_REPORTS: [&[u8]; 9] = [b"11", b"13", b"14", b"15", b"16", b"18", b"19", b"20", b"21"];

/// Where the filter is in a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte: a sequence that is no query, until its last byte.
    EscapeRest,
    Csi,
    /// In a string that ST ends. The byte after ESC says which string it is.
    String(u8),
    /// In a string, after an ESC that may begin ST.
    StringEscape(u8),
}

/// Returns `output` without the queries in it.
pub fn without_queries(output: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut filter = Filter::default();
    for byte in output {
        filter.push(byte);
    }
    filter.finish()
}

#[derive(Debug)]
struct Filter {
    state: State,
    kept: Vec<u8>,
    /// A sequence that the next one has cut off. It has no effect on a terminal, but it would if the next one were removed.
    cut_off: Vec<u8>,
    /// The current sequence, from its ESC on.
    sequence: Vec<u8>,
    /// Where the parameters or the text of the current sequence begin.
    text_from: usize,
    /// The control characters inside of the current sequence, which a terminal obeys at once.
    controls: Vec<u8>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { state: State::Text, kept: vec![], cut_off: vec![], sequence: vec![], text_from: 0, controls: vec![] }
    }
}

impl Filter {
    fn push(&mut self, byte: u8) {
        match (self.state, byte) {
            // A question by itself, also in the middle of a sequence. In a string it is a byte like any other.
            (State::Text | State::Escape | State::EscapeRest | State::Csi, ENQ) => {}
            (State::Text, ESC) => self.begin(),
            (State::Text, _) => self.kept.push(byte),
            (State::StringEscape(kind), b'\\') => {
                self.sequence.push(byte);
                self.end(is_string_query(kind, &self.sequence[self.text_from..self.sequence.len() - 2]));
            }
            (State::StringEscape(_), _) => {
                // The string is cut off, and its last ESC begins another sequence.
                self.sequence.pop();
                self.begin();
                self.push(byte);
            }
            (State::String(kind), ESC) => {
                self.sequence.push(byte);
                self.state = State::StringEscape(kind);
            }
            (_, ESC) => self.begin(),
            (_, CAN | SUB) => {
                self.sequence.push(byte);
                self.end(false);
            }
            (State::String(kind), _) => {
                self.sequence.push(byte);
                if kind == b']' && byte == BEL {
                    self.end(is_string_query(kind, &self.sequence[self.text_from..self.sequence.len() - 1]));
                }
            }
            (_, 0..0x20 | 0x7f) => {
                self.sequence.push(byte);
                self.controls.push(byte);
            }
            (State::Escape, _) => self.take_kind(byte),
            (State::EscapeRest, 0x20..0x30) => self.sequence.push(byte),
            (State::EscapeRest, _) => {
                self.sequence.push(byte);
                self.end(false);
            }
            (State::Csi, 0x20..0x40) => self.sequence.push(byte),
            (State::Csi, _) => {
                self.sequence.push(byte);
                let is_query = byte < 0x80 && is_csi_query(&self.sequence[self.text_from..]);
                self.end(is_query);
            }
        }
    }

    fn begin(&mut self) {
        self.cut_off.append(&mut self.sequence);
        self.controls.clear();
        self.sequence.push(ESC);
        self.state = State::Escape;
    }

    /// Takes the byte that says what kind of sequence it is.
    fn take_kind(&mut self, byte: u8) {
        self.sequence.push(byte);
        self.text_from = self.sequence.len();
        match byte {
            b'[' => self.state = State::Csi,
            b'P' | b']' | b'_' | b'^' | b'X' => self.state = State::String(byte),
            0x20..0x30 => self.state = State::EscapeRest,
            // DECID, the oldest way to ask what a terminal is.
            b'Z' => self.end(true),
            _ => self.end(false),
        }
    }

    fn end(&mut self, is_query: bool) {
        if is_query {
            self.cut_off.clear();
            self.kept.append(&mut self.controls);
            self.sequence.clear();
        } else {
            self.keep();
        }
        self.controls.clear();
        self.state = State::Text;
    }

    fn keep(&mut self) {
        self.kept.append(&mut self.cut_off);
        self.kept.append(&mut self.sequence);
    }

    fn finish(mut self) -> Vec<u8> {
        self.keep();
        self.kept
    }
}

/// Whether a terminal answers a CSI sequence, which is given without its first two bytes.
fn is_csi_query(sequence: &[u8]) -> bool {
    let plain: Vec<u8> = sequence.iter().copied().filter(|byte| !matches!(byte, 0..0x20 | 0x7f)).collect();
    // The kind is in the mark before the parameters, the intermediate bytes after them, and the last byte.
    let Some((last, rest)) = plain.split_last() else { return false };
    let (mark, rest) = match rest.split_first() {
        Some((mark @ b'<'..=b'?', rest)) => (Some(*mark), rest),
        _ => (None, rest),
    };
    let parameters_end = rest.iter().position(|byte| *byte < b'0').unwrap_or(rest.len());
    let (parameters, intermediates) = rest.split_at(parameters_end);
    if parameters.iter().any(|byte| matches!(byte, b'<'..=b'?')) {
        return false;
    }
    match (mark, intermediates, last) {
        // DA: what the terminal is. With `?` it is the cursor of the Linux console.
        (None | Some(b'>' | b'='), b"", b'c') => true,
        // DSR: its state, the cursor's position.
        (None | Some(b'?'), b"", b'n') => true,
        // DECREQTPARM.
        (None, b"", b'x') => true,
        // Reports about the window. Other numbers change it.
        (None, b"", b't') => {
            WINDOW_REPORTS.contains(&parameters.split(|byte| *byte == b';').next().unwrap_or_default())
        }
        // XTVERSION, the flags of the kitty keyboard, key modifiers, graphics.
        (Some(b'>'), b"", b'q') | (Some(b'?'), b"", b'u' | b'm' | b'S') => true,
        // DECRQM, DECRQPSR, DECRQTSR, DECRQUPSS, DECRQCRA, DECRQLP, XTREPORTCOLORS, XTREPORTSGR.
        (None | Some(b'?'), b"$", b'p') => true,
        (None, b"$", b'w' | b'u') | (None, b"&", b'u') | (None, b"*", b'y') | (None, b"'", b'|') => true,
        (None, b"#", b'R' | b'|') => true,
        _ => false,
    }
}

/// Whether a terminal answers a string of this kind.
fn is_string_query(kind: u8, text: &[u8]) -> bool {
    match kind {
        // DCS: DECRQSS, XTGETTCAP, XTGETXRES.
        b'P' => [&b"$q"[..], b"+q", b"+Q"].iter().any(|start| text.starts_with(start)),
        // APC: a question of the kitty graphics protocol.
        b'_' => text.strip_prefix(b"G").is_some_and(|graphics| {
            let control = graphics.split(|byte| *byte == b';').next().unwrap_or_default();
            control.split(|byte| *byte == b',').any(|part| part == b"a=q")
        }),
        b']' => is_osc_query(text),
        _ => false,
    }
}

fn is_osc_query(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| *byte == b';');
    let number = parts.next().unwrap_or_default();
    match number {
        // Colours, the font, the clipboard.
        b"4" | b"5" | b"50" | b"52" => parts.any(|part| part == b"?"),
        [b'1', b'0'..=b'9'] => parts.any(|part| part == b"?"),
        // Colours and notifications of kitty, and its shapes of the pointer.
        b"21" | b"99" => parts.any(|part| part.ends_with(b"=?") || part == b"?"),
        b"22" => parts.any(|part| part.starts_with(b"?")),
        // Which features xterm allows.
        b"60" | b"61" => true,
        b"1337" => parts.next().is_some_and(|part| part.starts_with(b"Report") || part == b"Capabilities"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replayed(text: &[u8]) -> Vec<u8> {
        without_queries(text.iter().copied())
    }

    /// What terminals answer, by the documents of xterm, kitty and iTerm2.
    const QUERIES: &[&[u8]] = &[
        b"\x05",
        b"\x1bZ",
        b"\x1b[c",
        b"\x1b[0c",
        b"\x1b[>c",
        b"\x1b[>0c",
        b"\x1b[=c",
        b"\x1b[5n",
        b"\x1b[6n",
        b"\x1b[?6n",
        b"\x1b[?996n",
        b"\x1b[x",
        b"\x1b[1x",
        b"\x1b[14t",
        b"\x1b[14;2t",
        b"\x1b[18t",
        b"\x1b[21t",
        b"\x1b[>q",
        b"\x1b[>0q",
        b"\x1b[?u",
        b"\x1b[?4m",
        b"\x1b[?1;1;0S",
        b"\x1b[?2026$p",
        b"\x1b[4$p",
        b"\x1b[1$w",
        b"\x1b[1;1;1;1;2;2*y",
        b"\x1b[#R",
        b"\x1bP$qm\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x1b]4;1;?\x07",
        b"\x1b]10;?\x1b\\",
        b"\x1b]11;?\x07",
        b"\x1b]12;?\x07",
        b"\x1b]52;c;?\x07",
        b"\x1b]21;foreground=?\x1b\\",
        b"\x1b]1337;ReportCellSize\x07",
        b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
    ];

    /// What looks similar and is no query.
    const OTHERS: &[&[u8]] = &[
        b"plain text: [6n ]11;?",
        "größer \u{9b}".as_bytes(),
        b"\x1b[?0c",
        b"\x1b[>4n",
        b"\x1b[1;31m",
        b"\x1b[8;24;80t",
        b"\x1b[22;0t",
        b"\x1b[2 q",
        b"\x1b[u",
        b"\x1b[>1u",
        b"\x1b[<u",
        b"\x1b[=5u",
        b"\x1b[3S",
        b"\x1b[>4;2m",
        b"\x1b[!p",
        b"\x1b[?2004h",
        b"\x1b[?1049l",
        b"\x1b(B",
        b"\x1b7",
        b"\x1b=",
        b"\x1b]0;a title?\x07",
        b"\x1b]2;?\x07",
        b"\x1b]4;1;red\x07",
        b"\x1b]11;#000000\x1b\\",
        b"\x1b]52;c;aGVsbG8=\x07",
        b"\x1b]8;;https://example.org/?q=1\x1b\\",
        b"\x1b]1337;SetMark\x07",
        b"\x1bP0;1q#0;2;0;0;0\x1b\\",
        b"\x1b_Ga=T,f=100;AAAA\x1b\\",
        b"\x1b[6\x18n",
        b"\x1b[1?6n",
        b"\r\n\t\x07\x08",
    ];

    #[test]
    fn every_query_is_removed_and_what_looks_similar_stays() {
        for query in QUERIES {
            assert_eq!(replayed(query), b"", "{:?}", String::from_utf8_lossy(query));
        }
        for other in OTHERS {
            assert_eq!(replayed(other), *other, "{:?}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn the_start_of_vim_is_replayed_without_its_questions() {
        let vim = b"\x1b[?1049h\x1b[22;0;0t\x1b[>4;2m\x1b[?1h\x1b=\x1b[?2004h\x1b[1;24r\x1b[?12h\x1b[?12l\x1b[22;2t\x1b[22;1t\
            \x1b[27m\x1b[23m\x1b[29m\x1b[m\x1b[H\x1b[2J\x1b[2;1H\xe2\x96\xbd\x1b[6n\x1b[2;1H  \x1b[3;1H\x1bPzz\x1b\\\x1b[0%m\x1b[6n\
            \x1b[3;1H           \x1b[1;1H\x1b[>c\x1b]10;?\x07\x1b]11;?\x07\x1b[1;1H";
        let text = replayed(vim);
        for query in [&b"\x1b[6n"[..], b"\x1b[>c", b"\x1b]10;?\x07", b"\x1b]11;?\x07"] {
            assert!(!text.windows(query.len()).any(|window| window == query), "{:?}", String::from_utf8_lossy(&text));
        }
        let removed = 2 * b"\x1b[6n".len() + b"\x1b[>c".len() + 2 * b"\x1b]10;?\x07".len();
        assert_eq!(text.len(), vim.len() - removed);
    }

    #[test]
    fn a_control_character_inside_of_a_query_is_obeyed() {
        assert_eq!(replayed(b"a\x1b[6\r\nnb"), b"a\r\nb");
        assert_eq!(replayed(b"\x1b\n]11;?\x07"), b"\n");
        assert_eq!(replayed(b"\x1b[1\x05;31m"), b"\x1b[1;31m");
    }

    #[test]
    fn what_the_end_has_cut_stays_for_the_rest_of_it() {
        for query in QUERIES.iter().filter(|query| query.len() > 1) {
            let cut = &query[..query.len() - 1];
            assert_eq!(replayed(cut), cut);
        }
    }

    #[test]
    fn removing_a_query_makes_no_other_one() {
        for text in [&b"\x1b\x1b[6n[6n"[..], b"\x1b[\x1b[6n6n", b"\x1b]11;\x1b[c?\x07", b"\x1b[\x1b]11;?\x076n"] {
            let once = replayed(text);
            assert_eq!(replayed(&once), once, "{:?}", String::from_utf8_lossy(text));
        }
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::sample::select(QUERIES).prop_map(<[u8]>::to_vec),
            proptest::sample::select(OTHERS).prop_map(<[u8]>::to_vec),
            proptest::collection::vec(any::<u8>(), 0..8),
            proptest::collection::vec(proptest::sample::select(&b"\x1b[]P_?>$;qcn0146\\\x07\x18"[..]), 0..10),
        ]
    }

    proptest! {
        #[test]
        fn whole_sequences_stay_and_whole_queries_go(pieces in proptest::collection::vec(any::<(bool, prop::sample::Index)>(), 0..40)) {
            let (mut text, mut expected) = (Vec::new(), Vec::new());
            for (is_query, index) in pieces {
                let piece = index.get(if is_query { QUERIES } else { OTHERS });
                text.extend_from_slice(piece);
                if !is_query {
                    expected.extend_from_slice(piece);
                }
            }
            prop_assert_eq!(replayed(&text), expected);
        }

        #[test]
        fn any_output_only_loses_bytes_and_has_no_query_afterwards(pieces in proptest::collection::vec(piece(), 0..40)) {
            let text = pieces.concat();
            let once = replayed(&text);
            // What is left is in the text, in its order.
            let mut rest = text.iter();
            prop_assert!(once.iter().all(|byte| rest.any(|other| other == byte)));
            prop_assert_eq!(&replayed(&once), &once);
        }

        #[test]
        fn text_without_escapes_is_not_touched(text in "[^\\x05\\x1b]{0,200}") {
            prop_assert_eq!(replayed(text.as_bytes()), text.as_bytes());
        }
    }
}
