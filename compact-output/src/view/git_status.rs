//! git status: every path stays; the advice about commands goes.

use super::{Reading, View};
use crate::out::Out;

pub(crate) struct GitStatus;

impl View for GitStatus {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii();
        if text.starts_with("(use \"git ") || text.is_empty() || text.starts_with("no changes added to commit") {
            return Reading::Taken;
        }
        let Some(path) = line.strip_prefix('\t') else {
            // `git status --short`
            let is_short =
                line.bytes().take(2).all(|sign| b" MADRCU?!T".contains(&sign)) && line.as_bytes().get(2) == Some(&b' ');
            if !is_short {
                return Reading::Pass;
            }
            out.exact(line);
            return Reading::Taken;
        };
        let kinds = [
            ("modified:", "M"),
            ("new file:", "A"),
            ("deleted:", "D"),
            ("renamed:", "R"),
            ("both modified:", "both modified:"),
        ];
        let short = kinds
            .iter()
            .find_map(|(long, short)| path.strip_prefix(long).map(|path| format!("{short} {}", path.trim_ascii())));
        out.exact(&short.unwrap_or_else(|| path.to_owned()));
        Reading::Taken
    }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn every_path_stays_and_the_advice_goes() {
        let text = compact(
            "git status",
            "On branch main\nChanges not staged for commit:\n  (use \"git add <file>...\" to update)\n\tmodified:   src/a.py\n\nUntracked files:\n\tb.txt\n",
        );
        assert_eq!(text, "On branch main\nChanges not staged for commit:\nM src/a.py\nUntracked files:\nb.txt\n");
    }
}
