//! Prompts: ready beginnings of a task, which a person chooses in the client. Their texts name only tools that exist.

use rmcp::model::{ErrorData, GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

/// The most characters of an argument.
const MAX_ARGUMENT_CHARS: usize = 16_384;

struct Definition {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    arguments: &'static [Argument],
    /// The text, with `{NAME}` where an argument goes.
    text: &'static str,
}

struct Argument {
    name: &'static str,
    about: &'static str,
    /// What stands for it if it is not given. `None` if it must be.
    default: Option<&'static str>,
}

const PROMPTS: &[Definition] = &[
    Definition {
        name: "fix-failing-test",
        title: "Fix a failing test",
        about: "Run the tests of a repository in the sandbox, find why one fails, and fix it",
        arguments: &[
            Argument { name: "directory", about: "Where the repository is", default: Some("/workspace") },
            Argument { name: "test", about: "The test that fails", default: Some("the one that fails") },
        ],
        text: "\
The repository in {directory} has a failing test: {test}.
Work in the sandbox with the tool `bash`. First find out how the tests are run and run them, so that you see the failure yourself. \
Read the code that it names. Say in one sentence what is wrong before you change anything. Then make the smallest change that fixes \
the cause, not the symptom, and run the tests again until all pass. Show the diff at the end.",
    },
    Definition {
        name: "explore-repository",
        title: "Explore a repository",
        about: "Look at a repository in the sandbox and explain how it is built",
        arguments: &[Argument { name: "directory", about: "Where the repository is", default: Some("/workspace") }],
        text: "\
Explore the repository in {directory} with the tools of the sandbox. Change nothing. Find out what it is for, how it is built and \
tested, what its parts are and how they use each other, and where a newcomer should begin to read. Answer with a short overview that \
names files, and say what you could not find out.",
    },
    Definition {
        name: "run-in-sandbox",
        title: "Run in the sandbox",
        about: "Do a task in the sandbox instead of on your machine",
        arguments: &[Argument { name: "task", about: "What to do", default: None }],
        text: "\
Do this in the sandbox, and not on my machine: {task}
Use the tool `bash`; its shell stays from one call to the next. If a program is missing, install it if the network allows that. Tell \
me what you ran and what came out of it, failures too.",
    },
];

pub fn all() -> Vec<Prompt> {
    PROMPTS.iter().map(shown).collect()
}

fn shown(definition: &Definition) -> Prompt {
    let arguments = definition.arguments.iter().map(|argument| {
        PromptArgument::new(argument.name).with_description(argument.about).with_required(argument.default.is_none())
    });
    Prompt::new(definition.name, Some(definition.about), Some(arguments.collect())).with_title(definition.title)
}

pub fn get(name: &str, arguments: JsonObject) -> Result<GetPromptResult, ErrorData> {
    let invalid = |message: String| ErrorData::invalid_params(message, None);
    let Some(definition) = PROMPTS.iter().find(|prompt| prompt.name == name) else {
        let known: Vec<&str> = PROMPTS.iter().map(|prompt| prompt.name).collect();
        return Err(invalid(format!("there is no such prompt; the prompts are {}", known.join(", "))));
    };
    let mut text = definition.text.to_owned();
    for argument in definition.arguments {
        let value = match (arguments.get(argument.name), argument.default) {
            (Some(Value::String(given)), _) if given.chars().count() <= MAX_ARGUMENT_CHARS => given.as_str(),
            (Some(_), _) => {
                let message = format!("{} must be a text of at most {MAX_ARGUMENT_CHARS} characters", argument.name);
                return Err(invalid(message));
            }
            (None, Some(default)) => default,
            (None, None) => return Err(invalid(format!("the prompt {name} needs the argument {}", argument.name))),
        };
        text = text.replace(&format!("{{{}}}", argument.name), value);
    }
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description(definition.about))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, arguments: Value) -> Result<String, String> {
        let got = get(name, arguments.as_object().cloned().unwrap_or_default()).map_err(|e| e.message.into_owned())?;
        Ok(serde_json::to_value(got).unwrap()["messages"][0]["content"]["text"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_prompt_has_its_arguments_in_its_text() {
        let given = serde_json::json!({"directory": "/src", "test": "adds"});
        assert!(text("fix-failing-test", given).unwrap().contains("in /src has a failing test: adds."));
        assert!(text("fix-failing-test", Value::Null).unwrap().contains("in /workspace"));
        assert_eq!(
            text("run-in-sandbox", Value::Null).unwrap_err(),
            "the prompt run-in-sandbox needs the argument task"
        );
        assert!(text("run-in-sandbox", serde_json::json!({"task": 1})).unwrap_err().contains("task must be a text"));
        assert!(text("nope", Value::Null).unwrap_err().contains("explore-repository"));
    }

    #[test]
    fn no_prompt_leaves_a_gap() {
        for prompt in PROMPTS {
            let all: JsonObject = prompt.arguments.iter().map(|argument| (argument.name.into(), "x".into())).collect();
            let text = text(prompt.name, all.into()).unwrap();
            assert!(!text.contains(['{', '}']), "{text}");
        }
    }
}
