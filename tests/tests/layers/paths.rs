//! Finds the modules of its own crate that a file names: with `crate::…`, also in groups, and with `super::super::…` up to
//! the root.

use std::path::Path;

use crate::tokens::Token;

/// The first word of a path from the crate's root: a module, or another item.
pub struct Mention {
    pub word: String,
    pub line: usize,
}

/// The module path of a file: `a/b.rs` and `a/b/mod.rs` are `a`, `b`.
pub fn module_path(path: &Path) -> Vec<String> {
    let parts = path.with_extension("");
    let parts = parts.iter().map(|part| part.to_string_lossy().into_owned());
    let mut parts: Vec<String> = parts.collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// The modules that the tokens of a file name.
pub fn mentions(path: &Path, tokens: &[Token]) -> Vec<Mention> {
    let file_depth = module_path(path).len();
    let mut found = Vec::new();
    // This is the depth of braces of each inline module.
    let (mut depth, mut inner) = (0usize, Vec::new());
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => {
                depth += 1;
                if index >= 2 && tokens[index - 2].text == "mod" {
                    inner.push(depth);
                }
            }
            "}" => {
                inner.pop_if(|start| *start == depth);
                depth = depth.saturating_sub(1);
            }
            "crate" => found.extend(heads(tokens, index + 1)),
            "super" if index == 0 || tokens[index - 1].text != "::" => {
                let count = supers(tokens, index);
                if count == file_depth + inner.len() {
                    found.extend(heads(tokens, index + 2 * count - 1));
                }
            }
            _ => {}
        }
    }
    found
}

fn supers(tokens: &[Token], from: usize) -> usize {
    tokens[from..]
        .chunks(2)
        .take_while(|pair| pair[0].text == "super" && pair.get(1).is_some_and(|t| t.text == "::"))
        .count()
}

/// The first words after `::`, of one path or of a group.
fn heads(tokens: &[Token], at: usize) -> Vec<Mention> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let mention = |index: usize| Mention { word: text(index).to_owned(), line: tokens[index].line };
    match (text(at), text(at + 1)) {
        ("::", "{") => {
            let (mut found, mut depth, mut index) = (Vec::new(), 1, at + 2);
            while depth > 0 && index < tokens.len() {
                match text(index) {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    _ if depth == 1 && matches!(text(index - 1), "{" | ",") => found.push(mention(index)),
                    _ => {}
                }
                index += 1;
            }
            found
        }
        ("::", "") => Vec::new(),
        ("::", _) => vec![mention(at + 1)],
        _ => Vec::new(),
    }
}
