//! The same tools in another order.

use serde_json::Value;

use crate::clean;
use crate::defect::Defect;
use crate::log::{Form, Mark, Request};
use crate::tools::{name_of, tools};

pub(super) fn defects() -> Vec<Defect> {
    vec![
        Defect::new("tool-order", "shuffled each time", clean::agents(41), |request, prose| {
            prose.rng.shuffle(request.tools());
            order(request)
        }),
        Defect::new(
            "tool-order",
            "servers in the order of their connection",
            clean::agents(42).written_as(Form::LiteLlm),
            |request, prose| {
                let mut servers: [Vec<Value>; 4] = Default::default();
                for tool in request.tools().drain(..) {
                    let server = name_of(&tool).split_once("__").map_or("", |(server, _)| server);
                    let known = ["", "tracker", "browser", "warehouse"];
                    let index = known.iter().position(|&name| name == server);
                    servers[index.expect("a server")].push(tool);
                }
                prose.rng.shuffle(&mut servers[1..]);
                *request.tools() = servers.into_iter().flatten().collect();
                order(request)
            },
        ),
        Defect::new(
            "tool-order",
            "a page of the list comes late",
            clean::agents(43),
            |request, prose| {
                let tools = request.tools();
                let page = prose.rng.below(tools.len());
                tools.rotate_left(page);
                order(request)
            },
        ),
        Defect::new(
            "tool-order",
            "two neighbours change places",
            clean::desk(44),
            |request, prose| {
                let at = prose.rng.below(5);
                request.tools().swap(at, at + 1);
                order(request)
            },
        ),
        Defect::new(
            "tool-order",
            "the one used last comes first",
            clean::agents(45),
            |request, _| {
                let messages = request.messages().clone();
                let calls = messages.iter().filter_map(|message| {
                    let call = &message["tool_calls"][0];
                    call.get("function").and_then(|function| function["name"].as_str())
                });
                let calls: Vec<_> = calls.collect();
                request.tools().sort_by_key(|tool| {
                    let used = calls.iter().rposition(|&name| name == name_of(tool));
                    used.map_or(usize::MAX, |at| calls.len() - at)
                });
                order(request)
            },
        ),
        Defect::new(
            "tool-order",
            "in the text of the system prompt",
            clean::long_chats(46),
            |request, prose| {
                let mut tools = tools(12);
                prose.rng.shuffle(&mut tools);
                let told: String = tools.iter().map(|tool| format!("{tool}\n")).collect();
                let told = format!("\n\n# Tools\n\nYou may call these.\n<tools>\n{told}</tools>\n");
                request.system().push_str(&told);
                Mark::Order(tools.iter().map(|tool| name_of(tool).to_owned()).collect())
            },
        ),
    ]
}

fn order(request: &mut Request) -> Mark {
    let names = request.tools().iter().map(|tool| name_of(tool).to_owned());
    Mark::Order(names.collect())
}
