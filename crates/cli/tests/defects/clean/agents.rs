//! Agents that call tools in a loop.

use serde_json::{Value, json};

use super::Chat;
use crate::log::Log;
use crate::prose::{CODE, Prose};
use crate::tools::tools;

const CODING: &str = include_str!("../text/coding.txt");

/// Instructions of some two thousand words, and where the agent works.
pub(crate) fn instructions(prose: &mut Prose) -> String {
    let notes = prose.handbook(CODE, 1_300);
    let place = "<env>\nWorking directory: /srv/work/atlas\nIs a git repository: yes\n\
                 Platform: linux\nShell: bash 5.2\n</env>";
    format!("{CODING}\n{place}\n\n# Notes of the project\n\n{notes}")
}

/// Six tasks of some fifteen steps: four with all twenty tools, two by a helper with twelve.
pub(crate) fn agents(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let system = instructions(&mut prose);
    let mut requests = Vec::new();
    for conversation in 0..6 {
        let mut chat = Chat::new(&mut prose, conversation, 20, system.clone());
        chat.tools = tools(if conversation < 4 { 20 } else { 12 });
        for _ in 0..2 {
            chat.say("user", prose.question(CODE));
            for _ in 0..5 + prose.rng.below(4) {
                chat.send_after(&mut prose, 3, 20);
                step(&mut chat, &mut prose);
            }
            chat.send_after(&mut prose, 3, 20);
            chat.say("assistant", prose.answer(CODE));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

/// The same, and before each call the agent says what it thinks, which stays.
pub(crate) fn thinking_agents(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let system = instructions(&mut prose);
    let mut requests = Vec::new();
    for conversation in 0..6 {
        let mut chat = Chat::new(&mut prose, conversation, 20, system.clone());
        chat.tools = tools(8);
        for _ in 0..4 {
            chat.say("user", prose.question(CODE));
            for _ in 0..3 {
                chat.send_after(&mut prose, 3, 20);
                let before = chat.messages.len();
                step(&mut chat, &mut prose);
                let thought = prose.thought(CODE);
                chat.messages[before]["content"] =
                    json!(format!("<think>\n{thought}\n</think>\n\n"));
            }
            chat.send_after(&mut prose, 3, 20);
            let (thought, answer) = (prose.thought(CODE), prose.answer(CODE));
            chat.say("assistant", format!("<think>\n{thought}\n</think>\n\n{answer}"));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

fn step(chat: &mut Chat, prose: &mut Prose) {
    let path = format!("/srv/work/atlas/src/{}.py", prose.name());
    let (name, arguments, result): (_, Value, String) = match prose.rng.below(4) {
        0 => (
            "read_file",
            json!({"path": path, "offset": 1, "limit": 40 + prose.rng.below(200)}),
            prose.code(),
        ),
        1 => (
            "edit_file",
            json!({"path": path, "old_text": prose.code(), "new_text": prose.code()}),
            format!("Replaced one piece of text in {path}."),
        ),
        2 => {
            let mut found = Vec::new();
            for _ in 0..4 {
                let line = 1 + prose.rng.below(900);
                found.push(format!("src/{}.py:{line}: {}", prose.name(), prose.sentence(CODE)));
            }
            let arguments =
                json!({"pattern": prose.name(), "folder": "/srv/work/atlas", "glob": "*.py"});
            ("search_text", arguments, found.join("\n"))
        }
        _ => {
            let (passed, seconds) = (prose.rng.below(300), prose.rng.below(60));
            let output = format!(
                "{}\n{passed} passed, 1 failed in {seconds}.{:02}s",
                prose.paragraph(CODE, 2),
                prose.rng.below(100)
            );
            let command = format!("pytest -q tests/test_{}.py", prose.name());
            let arguments = json!({"command": command, "timeout_ms": 60_000, "background": false});
            ("run_command", arguments, output)
        }
    };
    chat.call(prose, name, &arguments, result);
}
