//! Compares the container that Docker made with the request. If anything differs, the daemon does not use the container.

use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use serde_json::Value;

/// The differences, each with the name of its field. Only requested fields are compared; `request` sets all that matter.
pub fn differences(asked: &ContainerCreateBody, made: &ContainerInspectResponse) -> Vec<String> {
    let value = |part: serde_json::Result<Value>| part.unwrap_or(Value::Null);
    let wanted = value(serde_json::to_value(&asked.host_config));
    let found = value(serde_json::to_value(&made.host_config));
    let mut differences = fields("HostConfig", &wanted, &found);
    let config = made.config.clone().unwrap_or_default();
    for (name, wanted, found) in [
        ("User", value(serde_json::to_value(&asked.user)), value(serde_json::to_value(&config.user))),
        ("Entrypoint", value(serde_json::to_value(&asked.entrypoint)), value(serde_json::to_value(&config.entrypoint))),
        ("Cmd", value(serde_json::to_value(&asked.cmd)), value(serde_json::to_value(&config.cmd))),
    ] {
        if wanted != found {
            differences.push(format!("{name} is {found}, not {wanted}"));
        }
    }
    let tmpfs = asked.host_config.as_ref().and_then(|host| host.tmpfs.clone()).unwrap_or_default();
    for mount in made.mounts.iter().flatten() {
        // A tmpfs replaces a volume that the image declares.
        let is_covered = mount.destination.as_ref().is_some_and(|path| tmpfs.contains_key(path));
        if mount.typ.as_deref() == Some("volume") && !is_covered {
            differences.push(format!("there is a volume at {}", mount.destination.as_deref().unwrap_or("?")));
        }
    }
    differences
}

fn fields(place: &str, asked: &Value, made: &Value) -> Vec<String> {
    let Value::Object(asked) = asked else { return vec![format!("{place} is missing")] };
    let mut differences = Vec::new();
    for (name, wanted) in asked {
        let found = made.get(name).unwrap_or(&Value::Null);
        if normal(wanted) != normal(found) {
            differences.push(format!("{place}.{name} is {}, not {}", short(found), short(wanted)));
        }
    }
    differences
}

/// Removes differences without a meaning: engines leave out empty values, and no list here has an order.
fn normal(value: &Value) -> Value {
    match value {
        Value::Bool(false) => Value::Null,
        Value::Number(number) if number.as_i64() == Some(0) => Value::Null,
        Value::String(text) if text.is_empty() => Value::Null,
        Value::String(text) => Value::String(text.strip_prefix("CAP_").unwrap_or(text).to_owned()),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(normal).collect();
            items.sort_by_key(Value::to_string);
            if items.is_empty() { Value::Null } else { Value::Array(items) }
        }
        Value::Object(fields) => {
            let kept: serde_json::Map<String, Value> = fields
                .iter()
                .map(|(name, value)| (name.clone(), normal(value)))
                .filter(|(_, value)| !value.is_null())
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        other => other.clone(),
    }
}

/// The value as short text: a system call filter would fill a page.
fn short(value: &Value) -> String {
    const MAX_CHARS: usize = 120;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::{ContainerConfig, HostConfig, MountPoint};

    fn pair() -> (ContainerCreateBody, ContainerInspectResponse) {
        let host = HostConfig {
            privileged: Some(false),
            cap_add: Some(vec!["KILL".into(), "CHOWN".into()]),
            memory: Some(1 << 20),
            pid_mode: Some(String::new()),
            devices: Some(Vec::new()),
            ..HostConfig::default()
        };
        let made = HostConfig {
            cap_add: Some(vec!["CAP_CHOWN".into(), "CAP_KILL".into()]),
            privileged: None,
            pid_mode: None,
            devices: None,
            cpu_shares: Some(0),
            ..host.clone()
        };
        let config = ContainerConfig { user: Some("0:0".into()), ..ContainerConfig::default() };
        let asked =
            ContainerCreateBody { user: Some("0:0".into()), host_config: Some(host), ..ContainerCreateBody::default() };
        let got = ContainerInspectResponse {
            host_config: Some(made),
            config: Some(config),
            ..ContainerInspectResponse::default()
        };
        (asked, got)
    }

    #[test]
    fn the_same_in_other_words_is_the_same() {
        let (asked, made) = pair();
        assert_eq!(differences(&asked, &made), Vec::<String>::new());
    }

    #[test]
    fn what_the_engine_changed_is_named() {
        type Spoil = fn(&mut ContainerInspectResponse);
        let spoils: [(&str, Spoil); 5] = [
            ("Privileged", |made| made.host_config.as_mut().unwrap().privileged = Some(true)),
            ("CapAdd", |made| made.host_config.as_mut().unwrap().cap_add.as_mut().unwrap().push("SYS_ADMIN".into())),
            ("Memory", |made| made.host_config.as_mut().unwrap().memory = Some(0)),
            ("User", |made| made.config.as_mut().unwrap().user = None),
            ("volume at /x", |made| {
                let volume =
                    MountPoint { typ: Some("volume".into()), destination: Some("/x".into()), ..MountPoint::default() };
                made.mounts = Some(vec![volume]);
            }),
        ];
        for (name, spoil) in spoils {
            let (asked, mut made) = pair();
            spoil(&mut made);
            let found = differences(&asked, &made);
            assert!(found.len() == 1 && found[0].contains(name), "{name}: {found:?}");
        }
    }
}
