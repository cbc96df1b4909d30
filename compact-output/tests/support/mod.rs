//! Reads the corpus: recordings of real programs with the facts that must survive.

use std::path::PathBuf;

use compact_output::{CommandHint, Compact, Compactor, Options};
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub program: String,
    pub command: String,
    pub exit_code: i32,
    pub facts: Vec<String>,
    #[serde(skip)]
    pub raw: Vec<u8>,
}

#[derive(Deserialize)]
struct Facts {
    case: Vec<Case>,
}

impl Case {
    pub fn compact(&self, options: Options) -> Compact {
        let mut compactor = Compactor::new(CommandHint::of(&self.command), options);
        compactor.push(&self.raw);
        compactor.finish(Some(self.exit_code))
    }
}

pub fn corpus() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let text = std::fs::read_to_string(folder.join("facts.toml")).expect("the corpus has facts");
    let mut cases = toml::from_str::<Facts>(&text).expect("the facts are TOML").case;
    for case in &mut cases {
        case.raw = std::fs::read(folder.join(format!("{}.txt", case.name))).expect("each case has an output");
    }
    cases
}
