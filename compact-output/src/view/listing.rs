//! ls, find and tree: every name stays. Gone: folders that many names repeat, repeated columns, the lines that draw a tree.
//!
//! Names of one folder share lines. A name with a space or one that is not alone in its line is quoted by nothing: it gets a line of its own.

use super::{Reading, View};
use crate::command::Program;
use crate::out::Out;

/// A line of names is at most about this long.
const LINE_BYTES: usize = 160;

pub(crate) struct Listing {
    program: Program,
    folder: String,
    names: String,
    /// The first paths of a folder. If there are no more, they stay whole.
    few: Vec<String>,
    is_shared: bool,
}

/// Fewer paths of one folder stay as they are.
const MIN_SHARED: usize = 6;

impl Listing {
    pub(crate) fn new(program: Program) -> Self {
        Self { program, folder: String::new(), names: String::new(), few: Vec::new(), is_shared: false }
    }

    fn add_name(&mut self, name: &str, out: &mut Out) {
        if self.names.len() + name.len() > LINE_BYTES {
            self.end_names(out);
        }
        if !self.names.is_empty() {
            self.names.push(' ');
        }
        self.names.push_str(name);
        if name.contains(' ') {
            self.end_names(out);
        }
    }

    fn end_names(&mut self, out: &mut Out) {
        self.few.drain(..).for_each(|path| out.exact(&path));
        if !self.names.is_empty() {
            out.exact(&std::mem::take(&mut self.names));
        }
    }

    fn find(&mut self, line: &str, out: &mut Out) -> Reading {
        let is_path = (line.starts_with(['/', '.']) || line.contains('/'))
            && !line.contains(": ")
            && line.len() < 1000
            && !line.contains("  ");
        let Some((folder, name)) = line.rsplit_once('/').filter(|_| is_path) else {
            self.end_names(out);
            return Reading::Pass;
        };
        if folder != self.folder {
            self.end_names(out);
            folder.clone_into(&mut self.folder);
            self.is_shared = false;
        }
        if self.is_shared {
            self.add_name(name, out);
            return Reading::Taken;
        }
        self.few.push(line.to_owned());
        if self.few.len() == MIN_SHARED {
            self.is_shared = true;
            out.exact(&format!("{folder}/"));
            for path in std::mem::take(&mut self.few) {
                self.add_name(path.get(folder.len() + 1..).unwrap_or(&path), out);
            }
        }
        Reading::Taken
    }

    fn ls(&mut self, line: &str, out: &mut Out) -> Reading {
        if line.is_empty() || is_total(line) {
            self.end_names(out);
            return Reading::Taken;
        }
        if let Some(entry) = long_entry(line) {
            self.add_name(&entry, out);
            return Reading::Taken;
        }
        let is_name = !line.contains([' ', ':', '\t']) && line.len() < 300;
        if is_name {
            self.add_name(line, out);
            return Reading::Taken;
        }
        self.end_names(out);
        Reading::Pass
    }
}

impl View for Listing {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        match self.program {
            Program::Find => self.find(line, out),
            Program::Ls => self.ls(line, out),
            _ => {
                let Some(text) = without_branches(line) else { return Reading::Pass };
                out.exact(&text);
                Reading::Taken
            }
        }
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.end_names(out);
    }

    fn held_bytes(&self) -> usize {
        self.folder.capacity() + self.names.capacity() + self.few.iter().map(String::capacity).sum::<usize>()
    }
}

fn is_total(line: &str) -> bool {
    line.strip_prefix("total ")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.'))
}

/// `-rw-r--r-- 1 root root 12 Jan 5 10:00 a.txt` becomes `a.txt(12)`; a folder gets a slash, and unusual rights are written.
fn long_entry(line: &str) -> Option<String> {
    let mut rest = line;
    let mut column = || {
        let text = rest.trim_ascii_start();
        let end = text.find(' ')?;
        let (word, after) = text.split_at(end);
        rest = after;
        Some(word)
    };
    let rights = column()?;
    let is_rights = rights.len() >= 10
        && rights.starts_with(['-', 'd', 'l', 'c', 'b', 's', 'p'])
        && rights.bytes().skip(1).take(9).all(|b| b"rwxsStT-".contains(&b));
    let (links, _owner, _group, size) = (column()?, column()?, column()?, column()?);
    if !is_rights
        || links.parse::<u64>().is_err()
        || !size.starts_with(|c: char| c.is_ascii_digit())
        || size.ends_with(',')
    {
        return None;
    }
    let (_month, _day, _time) = (column()?, column()?, column()?);
    let name = rest.strip_prefix(' ')?;
    let rights = rights.get(..10)?;
    let unusual = if matches!(rights, "-rw-r--r--" | "-rwxr-xr-x" | "drwxr-xr-x" | "lrwxrwxrwx") {
        String::new()
    } else {
        format!(" {rights}")
    };
    Some(match rights.as_bytes().first()? {
        b'd' if unusual.is_empty() => format!("{name}/"),
        b'd' => format!("{name}/({})", unusual.trim_ascii()),
        b'l' => name.to_owned(),
        _ if rights == "-rwxr-xr-x" => format!("{name}({size} x)"),
        _ => format!("{name}({size}{unusual})"),
    })
}

/// `│   ├── a` becomes `  a`.
fn without_branches(line: &str) -> Option<String> {
    let text = line.trim_start_matches(['│', '├', '└', '─', '┬', ' ', '\u{a0}']);
    let drawn = line.get(..line.len() - text.len())?;
    if drawn.is_empty() || text.is_empty() {
        return None;
    }
    Some(format!("{}{text}", " ".repeat(drawn.chars().count() / 4)))
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn many_names_of_a_folder_share_a_line_and_few_keep_their_path() {
        let many: String = (0..7).map(|n| format!("./a/{n}.rs\n")).collect();
        let text = compact("find .", &format!("{many}./b/z.rs\n"));
        assert_eq!(text, "./a/\n0.rs 1.rs 2.rs 3.rs 4.rs 5.rs 6.rs\n./b/z.rs\n");
    }

    #[test]
    fn a_long_listing_keeps_names_sizes_and_unusual_rights() {
        let text = compact(
            "ls -la",
            "total 8\ndrwxr-xr-x 2 u u 4096 Jan  5 10:00 src\n-rw-r--r-- 1 u u 12 Jan  5 10:00 a.txt\n-rw------- 1 u u 3 Jan  5  2025 key file\nlrwxrwxrwx 1 u u 1 Jan  5 10:00 l -> a.txt\n",
        );
        assert_eq!(text, "src/ a.txt(12) key file(3 -rw-------)\nl -> a.txt\n");
    }

    #[test]
    fn errors_of_a_listing_stay() {
        let text = compact("ls x", "ls: cannot access 'x': No such file or directory\n");
        assert_eq!(text, "ls: cannot access 'x': No such file or directory\n");
    }

    #[test]
    fn a_tree_keeps_its_depth_without_its_branches() {
        assert_eq!(compact("tree", ".\n├── a\n│   └── b\n└── c\n"), ".\n a\n  b\n c\n");
    }
}
