//! git log: a line for each commit, then its message and its changes. The author's address and the time of day go.

use super::git_diff::GitDiff;
use super::{Reading, View};
use crate::out::Out;

#[derive(Default)]
pub(crate) struct GitLog {
    commit: Option<Commit>,
    diff: GitDiff,
}

#[derive(Default)]
struct Commit {
    id: String,
    author: String,
    date: String,
}

impl View for GitLog {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        if let Some(id) = line.strip_prefix("commit ").filter(|id| id.len() >= 40 && id.is_char_boundary(10)) {
            self.end_commit("", out);
            let (id, refs) = id.split_at(id.find(' ').unwrap_or(id.len()));
            let id = format!("{}{}", id.get(..10).unwrap_or(id), crate::fold::clamp(refs, 400));
            self.commit = Some(Commit { id, ..Commit::default() });
            return Reading::Taken;
        }
        let Some(commit) = &mut self.commit else {
            return if let Some(message) = line.strip_prefix("    ") {
                out.exact(&format!("  {message}"));
                Reading::Taken
            } else if line.is_empty() {
                Reading::Taken
            } else {
                self.diff.line(line, out)
            };
        };
        if let Some(author) = line.strip_prefix("Author: ") {
            author.split(" <").next().unwrap_or(author).clone_into(&mut commit.author);
        } else if let Some(date) = line.strip_prefix("Date: ") {
            date.trim_ascii().clone_into(&mut commit.date);
        } else if let Some(title) = line.strip_prefix("    ") {
            self.end_commit(title, out);
        } else if !line.is_empty() {
            out.line(line);
        }
        Reading::Taken
    }

    fn finish(&mut self, exit_code: Option<i32>, out: &mut Out) {
        self.end_commit("", out);
        self.diff.finish(exit_code, out);
    }

    fn held_bytes(&self) -> usize {
        self.commit
            .as_ref()
            .map_or(0, |commit| commit.id.capacity() + commit.author.capacity() + commit.date.capacity())
    }
}

impl GitLog {
    fn end_commit(&mut self, title: &str, out: &mut Out) {
        if let Some(Commit { id, author, date }) = self.commit.take() {
            let mut words = date.split(' ');
            let (_, month, day, _, year) = (words.next(), words.next(), words.next(), words.next(), words.next());
            let date = match (month, day, year) {
                (Some(month), Some(day), Some(year)) => format!("{month} {day} {year}"),
                _ => date,
            };
            out.exact(&format!("{id} {date} {author}: {title}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn a_commit_becomes_a_line_and_its_message_stays() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let text = compact(
            "git log",
            &format!(
                "commit {id} (HEAD -> main)\nAuthor: Ada <ada@example.org>\nDate:   Mon Jan 5 10:00:00 2026 +0000\n\n    Add the shop\n    \n    Because.\n\n"
            ),
        );
        assert_eq!(text, "0123456789 (HEAD -> main) Jan 5 2026 Ada: Add the shop\n  Because.\n");
    }

    #[test]
    fn short_logs_stay_as_they_are() {
        assert_eq!(compact("git log --oneline", "a1b2c3d Add\nb2c3d4e Fix\n"), "a1b2c3d Add\nb2c3d4e Fix\n");
    }
}
