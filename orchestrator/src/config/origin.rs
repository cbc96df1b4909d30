//! Where a setting was given, so that an error names the place to correct.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    #[default]
    BuiltIn,
    File {
        path: String,
        line: usize,
    },
    /// The name of the variable.
    Variable(String),
    /// The flag with its dashes.
    Flag(String),
}

impl Origin {
    /// The start of an error message. The name of a variable or a flag is enough; in a file, the key is needed too.
    pub fn place(&self, key: &str) -> String {
        match self {
            Self::BuiltIn => key.to_owned(),
            Self::File { path, line } => format!("{path}:{line}: {key}"),
            Self::Variable(name) | Self::Flag(name) => name.clone(),
        }
    }

    /// The name that a setting has in this kind of place.
    pub fn name_of(&self, key: &str) -> String {
        match self {
            Self::Variable(_) => format!("COVE_{}", key.replace('.', "_").to_ascii_uppercase()),
            Self::BuiltIn | Self::File { .. } | Self::Flag(_) => key.to_owned(),
        }
    }

    pub fn is_flag(&self) -> bool {
        matches!(self, Self::Flag(_))
    }
}
