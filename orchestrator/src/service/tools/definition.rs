//! The definitions of all tools: names, what models are told about them, and the schemas of their arguments and answers.

use std::sync::LazyLock;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::arguments::{
    BashArguments, DeleteArguments, DiffArguments, EditArguments, ExposePortArguments, FindArguments, GitArguments,
    GrepArguments, KillArguments, LsArguments, NetworkRequestArguments, OutputArguments, ReadArguments,
    RestoreArguments, RunBackgroundArguments, SnapshotArguments, WaitArguments, WriteArguments,
};

/// What a tool does to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    ReadOnly,
    Changes,
    /// It may delete or overwrite what cannot be made again.
    Destroys,
}

/// A tool, as models see it.
#[derive(Debug)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub effect: Effect,
    /// Whether a second call with the same arguments changes nothing more.
    pub is_idempotent: bool,
    /// Whether it may reach what is outside of the sandbox.
    pub is_open_world: bool,
    /// The schema of the arguments, an object.
    pub input_schema: Value,
    /// The schema of the structured part of an answer that is not an error.
    pub output_schema: Option<Value>,
}

/// All tools, in the order in which models should see them.
pub fn definitions() -> &'static [ToolDefinition] {
    static ALL: LazyLock<Vec<ToolDefinition>> = LazyLock::new(all);
    &ALL
}

/// What to say about a name that no tool has.
pub fn unknown(name: &str) -> String {
    let nearest = definitions()
        .iter()
        .map(|tool| (strsim::jaro_winkler(tool.name, name), tool.name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let names: Vec<&str> = definitions().iter().map(|tool| tool.name).collect();
    let shown: String = name.chars().take(64).collect();
    let hint = nearest.map(|(_, nearest)| format!("did you mean {nearest}? ")).unwrap_or_default();
    format!("there is no tool {shown:?}; {hint}The tools are: {}", names.join(", "))
}

/// The arguments of a tool in one sentence.
pub fn arguments_of(name: &str) -> String {
    let Some(tool) = definitions().iter().find(|tool| tool.name == name) else { return String::new() };
    let schema = &tool.input_schema;
    let required = |name: &str| {
        let required = schema["required"].as_array();
        required.is_some_and(|required| required.iter().any(|field| field == name))
    };
    let kind = |property: &Value| match property["type"].as_str() {
        Some("string") => "text",
        Some("integer" | "number") => "number",
        Some("boolean") => "true or false",
        Some("array") => "list",
        _ => "value",
    };
    let Some(properties) = schema["properties"].as_object() else { return String::new() };
    let listed: Vec<String> = properties
        .iter()
        .map(|(name, property)| {
            let more = if required(name) { ", required" } else { "" };
            format!("{name} ({}{more})", kind(property))
        })
        .collect();
    format!("Arguments: {}", listed.join(", "))
}

fn all() -> Vec<ToolDefinition> {
    use Effect::{Changes, Destroys, ReadOnly};
    vec![
        tool::<ReadArguments>("read", "Read a file", ReadOnly)
            .about(
                "Reads a text file with line numbers, or an image as an image. Use offset and limit for a part of a long file. The numbers \
                 and the tab after them are not part of the file.",
            )
            .answers(json!({
                "path": text(), "kind": text(), "first_line": number(), "last_line": number(), "total_lines": number(),
                "next_offset": number(), "media_type": text(), "bytes": number()
            })),
        tool::<WriteArguments>("write", "Write a file", Destroys)
            .about(
                "Writes a whole file: it is created, with its directories, or replaced. To change a part of a file, use edit.",
            )
            .idempotent()
            .answers(json!({ "path": text(), "bytes": number(), "is_new": flag() })),
        tool::<EditArguments>("edit", "Edit a file", Destroys)
            .about(
                "Replaces text in a file. old_string must match exactly, with its indentation, and once, unless replace_all is true. Several \
                 edits in one call are made all or not at all. Line endings and encoding of the file stay as they are.",
            )
            .answers(json!({ "path": text(), "replacements": number(), "diff": text() })),
        tool::<LsArguments>("ls", "List a directory", ReadOnly)
            .about("Lists a directory as a tree, with sizes, and leaves out what git ignores. Use find to look for names.")
            .answers(json!({ "path": text(), "entries": number(), "is_cut": flag() })),
        tool::<GrepArguments>("grep", "Search in files", ReadOnly)
            .about(
                "Searches the content of files with a regular expression, as ripgrep does, and leaves out what git ignores and binary files. \
                 The image needs no grep for it.",
            )
            .answers(json!({ "matches": number(), "files": number(), "is_cut": flag() })),
        tool::<FindArguments>("find", "Find files", ReadOnly)
            .about("Finds files and directories by name, size, kind and time of change, and leaves out what git ignores.")
            .answers(json!({ "paths": list(text()), "is_cut": flag() })),
        tool::<GitArguments>("git", "Run git", Destroys)
            .about("Runs git with any arguments, without a pager or an editor. Long output of status, diff, log and show is shortened.")
            .open_world()
            .answers(command_answer()),
        tool::<DiffArguments>("diff", "Compare files", ReadOnly)
            .about(
                "Compares two files, or a file with what it was when read, write, edit or diff last had it. The answer is a unified diff.",
            )
            .answers(json!({ "is_same": flag(), "diff": text() })),
        tool::<DeleteArguments>("delete", "Delete a file", Destroys)
            .about("Deletes a file, a symbolic link or, with recursive, a directory with everything in it.")
            .answers(json!({ "path": text() })),
        tool::<BashArguments>("bash", "Run a command", Destroys)
            .about(
                "Runs a command in a bash that stays: directory, variables, functions and virtualenvs are there for the next command. Long \
                 output is shortened, with failures first; the tool output shows all of it. The answer has the exit code, the directory and \
                 what the network policy denied. Nothing can break the shell; restart: true starts it anew.",
            )
            .open_world()
            .answers(command_answer()),
        tool::<RunBackgroundArguments>("run_background", "Start a command in the background", Destroys)
            .about("Starts a command that keeps running, such as a server, and returns its exec_id for wait, output and kill.")
            .open_world()
            .answers(json!({ "exec_id": text() })),
        tool::<WaitArguments>("wait", "Wait for a command", ReadOnly)
            .about("Waits until a command of run_background has ended, or the time is over, and shows its output, shortened.")
            .answers(command_answer()),
        tool::<OutputArguments>("output", "Read the output of a command", ReadOnly)
            .about("Shows the output of a command as it was printed, from an offset on, also of a command that still runs.")
            .answers(json!({
                "exec_id": text(), "from": number(), "next_from": number(), "is_running": flag(), "exit_code": number()
            })),
        tool::<KillArguments>("kill", "End a command", Destroys)
            .about("Ends a command and tells its exit code, or sends it a signal.")
            .answers(json!({
                "exec_id": text(), "signal": text(), "is_running": flag(), "exit_code": number()
            })),
        tool::<ExposePortArguments>("expose_port", "Get a link to a server", Changes)
            .about("Gives a link that opens a server of the sandbox in a person's browser, for a time.")
            .open_world()
            .answers(json!({ "url": text(), "expires_at": text() })),
        tool::<SnapshotArguments>("snapshot", "Make a snapshot", Changes)
            .about("Keeps all files and the state of the shells, to come back to with restore. Processes are not part of it.")
            .answers(json!({ "snapshot_id": text() })),
        tool::<RestoreArguments>("restore", "Go back to a snapshot", Destroys)
            .about("Continues in a new sandbox with the files and shells of a snapshot. The answer has the id of its session.")
            .answers(json!({ "session_id": text() })),
        tool::<NetworkRequestArguments>("network_request", "Ask for network access", Changes)
            .about("Asks for access to hosts that a command was denied. The operator's policy decides; a refusal says what to do.")
            .open_world()
            .idempotent()
            .answers(json!({ "allowed": list(text()) })),
    ]
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "integer" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn command_answer() -> Value {
    json!({
        "exec_id": text(), "exit_code": number(), "cwd": text(), "is_running": flag(), "timed_out": flag(),
        "was_cancelled": flag(), "output_bytes": number(), "is_shortened": flag(), "network_denied": list(text())
    })
}

fn tool<A: JsonSchema>(name: &'static str, title: &'static str, effect: Effect) -> ToolDefinition {
    ToolDefinition {
        name,
        title,
        description: "",
        effect,
        is_idempotent: effect == Effect::ReadOnly,
        is_open_world: false,
        input_schema: schema_of::<A>(),
        output_schema: None,
    }
}

impl ToolDefinition {
    fn about(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    fn open_world(mut self) -> Self {
        self.is_open_world = true;
        self
    }

    /// The properties of the structured answer. All of them may be absent.
    fn answers(mut self, properties: Value) -> Self {
        self.output_schema = Some(json!({ "type": "object", "properties": properties }));
        self
    }
}

/// A schema without what only some models understand: no references, no `null` beside a type, no formats.
fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<A>().to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
        fields.remove("description");
    }
    simplify(&mut schema);
    schema
}

fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for useless in ["format", "minimum", "maximum", "$schema"] {
                fields.remove(useless);
            }
            if fields.get("default") == Some(&Value::Null) {
                fields.remove("default");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    fields.remove("anyOf");
                    for (name, value) in only {
                        fields.entry(name).or_insert(value);
                    }
                }
            }
            if let Some(Value::Array(values)) = fields.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tool_is_told_to_models_completely_and_simply() {
        let mut names = BTreeSet::new();
        for tool in definitions() {
            assert!(names.insert(tool.name) && !tool.title.is_empty(), "{}", tool.name);
            assert!((40..600).contains(&tool.description.len()), "{}: {}", tool.name, tool.description.len());
            let schema = tool.input_schema.to_string();
            assert_eq!(
                (&tool.input_schema["type"], &tool.input_schema["additionalProperties"]),
                (&json!("object"), &json!(false))
            );
            for complicated in ["$ref", "null", "\"format\"", "oneOf"] {
                assert!(!schema.contains(complicated), "{}: {schema}", tool.name);
            }
            let properties = tool.input_schema["properties"].as_object().expect("arguments");
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{} {name} has no description", tool.name);
            }
        }
        assert_eq!(names.len(), 18);
    }

    #[test]
    fn the_ten_tools_of_other_systems_have_their_names() {
        let names: Vec<&str> = definitions().iter().map(|tool| tool.name).take(10).collect();
        assert_eq!(names, ["read", "write", "edit", "ls", "grep", "find", "git", "diff", "delete", "bash"]);
    }

    #[test]
    fn a_misspelt_tool_is_recognised() {
        assert!(unknown("run_backgroud").contains("did you mean run_background?"));
        assert!(!unknown("zzz").contains("did you mean"));
    }
}
