//! A document as a list of steps for its reader: the fenced blocks of a Markdown file, in order.
//!
//! | fence | what happens |
//! |---|---|
//! | ` ```sh ` | its commands run in the document's bash |
//! | ` ```keys ` after it | those commands run on a terminal, and each line is typed when a prompt is there |
//! | ` ```output ` after it | what the commands print, all of it, standard error included; `…` stands for anything |
//! | ` ```toml ` | nothing here: another test starts a daemon with each configuration of each document |
//! | ` ```LANGUAGE file=NAME ` | its text becomes that file in the working directory |
//! | ` ```text prints ` after `python` or `ts` | nothing here: the tests of that SDK run the program and compare what it prints |
//! | ` ```LANGUAGE not-run: REASON ` | nothing, and neither is an ` ```output ` after it compared; the reason is printed |
//!
//! Commands without an ` ```output ` must print nothing. Any other fence is an error, and so is a program in `python` or `ts` that
//! neither a command here nor a test of an SDK runs: a block is never left out silently.

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Commands to run. `prints` is empty if the document shows no output.
    Commands {
        line: usize,
        script: String,
        keys: Vec<String>,
        prints: String,
    },
    /// `is_run_by_sdk` says that a test of the SDK for this language runs it.
    File {
        language: String,
        name: String,
        text: String,
        is_run_by_sdk: bool,
    },
    NotRun {
        line: usize,
        reason: String,
    },
}

#[derive(Debug)]
pub struct Document {
    pub name: String,
    pub steps: Vec<Step>,
}

/// One fenced block. `info` is the text after the opening fence.
#[derive(Debug)]
pub struct Block {
    pub line: usize,
    pub info: String,
    pub text: String,
}

/// The language of configurations.
pub const CONFIGURATION: &str = "toml";
const FENCE: &str = "```";
const NOT_RUN: &str = "not-run:";
const FILE: &str = "file=";
/// What a program of an SDK prints.
const PROGRAM_OUTPUT: (&str, &str) = ("text", "prints");
/// The languages of the SDKs, whose own tests run the programs in the documents.
const SDK_LANGUAGES: [&str; 2] = ["python", "ts"];

/// All fenced blocks of a document, whatever their kind.
pub fn blocks(name: &str, document: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((index, opening)) = lines.next() {
        let Some(info) = opening.trim_start().strip_prefix(FENCE) else { continue };
        let indent = opening.len() - opening.trim_start().len();
        let mut block = Block { line: index + 1, info: info.trim().to_owned(), text: String::new() };
        loop {
            let (_, line) = lines.next().ok_or_else(|| format!("{name}:{}: the block has no end", block.line))?;
            if line.trim() == FENCE {
                break;
            }
            // A block in a list is indented like its item.
            block.text.push_str(line.get(indent..).unwrap_or_default());
            block.text.push('\n');
        }
        blocks.push(block);
    }
    Ok(blocks)
}

impl Document {
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut document = Self { name: name.to_owned(), steps: Vec::new() };
        for Block { line, info, text } in blocks(name, text)? {
            document.add(line, &info, text).map_err(|why| format!("{name}:{line}: {why}"))?;
        }
        match document.program_that_nothing_runs() {
            Some(file) => Err(format!("{name}: no command runs {file}, and no block says what it prints")),
            None => Ok(document),
        }
    }

    fn program_that_nothing_runs(&self) -> Option<&str> {
        let is_named = |name: &str| {
            self.steps.iter().any(|step| matches!(step, Step::Commands { script, .. } if script.contains(name)))
        };
        self.steps.iter().find_map(|step| match step {
            Step::File { language, name, is_run_by_sdk: false, .. }
                if SDK_LANGUAGES.contains(&language.as_str()) && !is_named(name) =>
            {
                Some(name.as_str())
            }
            _ => None,
        })
    }

    fn add(&mut self, line: usize, info: &str, text: String) -> Result<(), String> {
        let (language, rest) = info.split_once(' ').map_or((info, ""), |(language, rest)| (language, rest.trim()));
        if let Some(reason) = rest.strip_prefix(NOT_RUN) {
            let reason = reason.trim().to_owned();
            if reason.is_empty() {
                return Err("a block that is not run says why".to_owned());
            }
            self.steps.push(Step::NotRun { line, reason });
            return Ok(());
        }
        if let Some(name) = rest.strip_prefix(FILE) {
            let (language, name) = (language.to_owned(), name.to_owned());
            self.steps.push(Step::File { language, name, text, is_run_by_sdk: false });
            return Ok(());
        }
        match (language, rest) {
            ("sh", "") => {
                self.steps.push(Step::Commands { line, script: text, keys: Vec::new(), prints: String::new() });
            }
            (CONFIGURATION, "") => {}
            ("output", "") => match self.steps.last_mut() {
                Some(Step::Commands { prints, .. }) => *prints = text,
                Some(Step::NotRun { .. }) => {}
                _ => return Err("output without commands before it".to_owned()),
            },
            PROGRAM_OUTPUT => match self.steps.last_mut() {
                Some(Step::File { language, is_run_by_sdk, .. }) if SDK_LANGUAGES.contains(&language.as_str()) => {
                    *is_run_by_sdk = true;
                }
                _ => return Err(format!("what a program prints comes after a program in one of {SDK_LANGUAGES:?}")),
            },
            ("keys", "") => match self.steps.last_mut() {
                Some(Step::Commands { keys, .. }) => *keys = text.lines().map(str::to_owned).collect(),
                _ => return Err("keys without commands before them".to_owned()),
            },
            _ => return Err(format!("a block of an unknown kind: {FENCE}{info}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Step>, String> {
        Document::parse("x.md", text).map(|document| document.steps)
    }

    #[test]
    fn commands_have_their_keys_and_their_output() {
        let steps = parsed("a\n\n```sh\ncove shell\n```\nb\n```keys\nexit\n```\n```output\nbye\n```\n");
        let expected = Step::Commands {
            line: 3,
            script: "cove shell\n".to_owned(),
            keys: vec!["exit".to_owned()],
            prints: "bye\n".to_owned(),
        };
        assert_eq!(steps, Ok(vec![expected]));
    }

    #[test]
    fn a_block_that_is_not_run_says_why_and_keeps_its_output_to_itself() {
        let steps = parsed("```sh not-run: needs Docker\ndocker ps\n```\n```output\nnothing\n```\n");
        assert_eq!(steps, Ok(vec![Step::NotRun { line: 1, reason: "needs Docker".to_owned() }]));
        assert!(parsed("```sh not-run:\ndocker ps\n```\n").is_err());
    }

    #[test]
    fn a_block_in_a_list_loses_its_indent() {
        let steps = parsed("- a\n\n  ```toml file=a.toml\n  x = [\n    1,\n  ]\n  ```\n");
        let expected = Step::File {
            language: "toml".to_owned(),
            name: "a.toml".to_owned(),
            text: "x = [\n  1,\n]\n".to_owned(),
            is_run_by_sdk: false,
        };
        assert_eq!(steps, Ok(vec![expected]));
    }

    #[test]
    fn what_a_program_prints_follows_a_program_of_an_sdk() {
        let after = |program: &str| parsed(&format!("{program}```text prints\n1\n```\n"));
        for language in SDK_LANGUAGES {
            assert!(
                after(&format!("```{language} file=a\nx\n```\n")).is_ok_and(|steps| steps.len() == 1),
                "{language}"
            );
        }
        for program in ["", "```perl file=a\nx\n```\n", "```sh\nls\n```\n"] {
            assert!(after(program).is_err(), "{program:?}");
        }
    }

    #[test]
    fn a_program_that_nothing_runs_is_an_error() {
        let program = "```python file=a.py\nx\n```\n";
        assert!(parsed(program).is_err());
        assert!(parsed(&format!("{program}```sh\npython3 a.py\n```\n")).is_ok());
        assert!(parsed(&format!("{program}```sh not-run: no reason\npython3 a.py\n```\n")).is_err());
    }

    #[test]
    fn an_unknown_kind_is_an_error_and_so_is_a_block_without_an_end() {
        for text in
            ["```\nls\n```\n", "```bash\nls\n```\n", "```sh quietly\nls\n```\n", "```output\nx\n```\n", "```sh\nls\n"]
        {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }
}
