//! Twenty tools with their schemas, as clients declare them.

use serde_json::{Map, Value, json};

/// Name, what it does, its parameters: name, type, what it is, whether it must be given.
type Tool =
    (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str, bool)]);

/// A coding agent's own, then those of three MCP servers: an issue tracker, a browser, a database.
const TOOLS: [Tool; 20] = [
    (
        "read_file",
        "Reads a file and returns its lines with their numbers. Long files are read in parts.",
        &[
            ("path", "string", "Absolute path of the file.", true),
            ("offset", "integer", "First line, counted from one.", false),
            ("limit", "integer", "Most lines to return.", false),
        ],
    ),
    (
        "edit_file",
        "Replaces one piece of text in a file by another. The old text must occur exactly once.",
        &[
            ("path", "string", "Absolute path of the file.", true),
            ("old_text", "string", "What stands there now, with its white space.", true),
            ("new_text", "string", "What shall stand there instead.", true),
        ],
    ),
    (
        "write_file",
        "Writes a whole file. An existing file must have been read in this conversation.",
        &[
            ("path", "string", "Absolute path of the file.", true),
            ("content", "string", "The file's new content.", true),
        ],
    ),
    (
        "run_command",
        "Runs a command in the shell and returns its output, the exit status last.",
        &[
            ("command", "string", "The command line.", true),
            ("timeout_ms", "integer", "Ends the command after so many milliseconds.", false),
            ("background", "boolean", "Does not wait for the end.", false),
        ],
    ),
    (
        "search_text",
        "Searches the contents of files by a regular expression, newest files first.",
        &[
            ("pattern", "string", "The expression.", true),
            ("folder", "string", "Where to search; the repository if absent.", false),
            ("glob", "string", "Only files whose names match, such as *.rs.", false),
        ],
    ),
    (
        "list_files",
        "Lists the files of a folder that match a pattern, without those that git ignores.",
        &[
            ("folder", "string", "Absolute path of the folder.", true),
            ("glob", "string", "Pattern of names.", false),
        ],
    ),
    (
        "update_plan",
        "Replaces the list of steps. Exactly one step may be in progress.",
        &[("steps", "array", "All steps in order, each with its state.", true)],
    ),
    (
        "fetch_page",
        "Fetches a page from the web and returns its text.",
        &[
            ("url", "string", "Address of the page.", true),
            ("question", "string", "What to look for in it.", false),
        ],
    ),
    (
        "tracker__list_issues",
        "Lists the issues of a project by state and label.",
        &[
            ("project", "string", "Short name of the project.", true),
            ("state", "string", "One of open, closed, all.", false),
            ("label", "string", "Only issues with this label.", false),
        ],
    ),
    (
        "tracker__get_issue",
        "Returns one issue with all comments, oldest first.",
        &[
            ("project", "string", "Short name of the project.", true),
            ("number", "integer", "The issue's number.", true),
        ],
    ),
    (
        "tracker__add_comment",
        "Adds a comment to an issue. Markdown is allowed.",
        &[
            ("project", "string", "Short name of the project.", true),
            ("number", "integer", "The issue's number.", true),
            ("text", "string", "The comment.", true),
        ],
    ),
    (
        "tracker__set_state",
        "Opens or closes an issue and says why.",
        &[
            ("project", "string", "Short name of the project.", true),
            ("number", "integer", "The issue's number.", true),
            ("state", "string", "Either open or closed.", true),
            ("reason", "string", "One sentence for the reader.", false),
        ],
    ),
    (
        "browser__open",
        "Opens an address in a tab and waits until the page is quiet.",
        &[
            ("url", "string", "Address of the page.", true),
            ("width", "integer", "Width of the window in pixels.", false),
        ],
    ),
    (
        "browser__click",
        "Clicks on an element of the open page.",
        &[
            ("selector", "string", "CSS selector of the element.", true),
            ("count", "integer", "Two for a double click.", false),
        ],
    ),
    (
        "browser__type",
        "Types text into a field of the open page.",
        &[
            ("selector", "string", "CSS selector of the field.", true),
            ("text", "string", "What to type.", true),
            ("submit", "boolean", "Presses Enter afterwards.", false),
        ],
    ),
    (
        "browser__screenshot",
        "Takes a picture of the open page or of one element.",
        &[
            ("selector", "string", "CSS selector; the whole page if absent.", false),
            ("full_page", "boolean", "Also what is below the fold.", false),
        ],
    ),
    (
        "warehouse__query",
        "Runs a read-only SQL query and returns at most a thousand rows.",
        &[
            ("sql", "string", "The query.", true),
            ("limit", "integer", "Most rows to return.", false),
        ],
    ),
    (
        "warehouse__describe",
        "Describes the columns of a table, with their types and three examples.",
        &[("table", "string", "Name of the table, with its schema.", true)],
    ),
    (
        "warehouse__tables",
        "Lists the tables of a schema with their numbers of rows.",
        &[("schema", "string", "Name of the schema.", true)],
    ),
    (
        "warehouse__explain",
        "Explains how a query would be run, without running it.",
        &[
            ("sql", "string", "The query.", true),
            ("analyze", "boolean", "Also with the times of a real run.", false),
        ],
    ),
];

/// The first `count` of them in OpenAI's form.
pub(crate) fn tools(count: usize) -> Vec<Value> {
    TOOLS[..count].iter().map(tool).collect()
}

/// Returns the tools of the help desk, in the same form.
pub(crate) fn desk_tools() -> Vec<Value> {
    const DESK: [Tool; 6] = [
        (
            "find_order",
            "Finds orders by number, or by postcode and article.",
            &[
                ("number", "string", "The order's number.", false),
                ("postcode", "string", "Postcode of the delivery address.", false),
                ("article", "string", "Part of an article's name.", false),
            ],
        ),
        (
            "track_parcel",
            "Says where a parcel was last scanned.",
            &[("tracking_code", "string", "The carrier's code.", true)],
        ),
        (
            "refund",
            "Refunds a sum of money for a line of an order.",
            &[
                ("order", "string", "The order's number.", true),
                ("line", "integer", "The line, counted from one.", true),
                ("amount", "number", "Pounds to pay back.", true),
                ("reason", "string", "Why, for the books.", true),
            ],
        ),
        (
            "change_address",
            "Changes the delivery address of an order that has not left.",
            &[
                ("order", "string", "The order's number.", true),
                ("address", "string", "The new address in one line.", true),
            ],
        ),
        (
            "open_case",
            "Opens a case for a colleague and returns its number.",
            &[
                ("order", "string", "The order's number.", false),
                ("priority", "string", "One of low, normal, high, highest.", true),
                ("summary", "string", "What happened, in two sentences.", true),
            ],
        ),
        (
            "open_enquiry",
            "Asks the carrier where a parcel is.",
            &[("tracking_code", "string", "The carrier's code.", true)],
        ),
    ];
    DESK.iter().map(tool).collect()
}

/// The tool's name, also of a schema without the outer object.
pub(crate) fn name_of(tool: &Value) -> &str {
    let function = tool.get("function").unwrap_or(tool);
    function["name"].as_str().expect("a name")
}

fn tool(&(name, description, parameters): &Tool) -> Value {
    let mut properties = Map::new();
    for (name, kind, what, _) in parameters {
        let schema = json!({"type": kind, "description": what});
        properties.insert((*name).to_owned(), schema);
    }
    let must = parameters.iter().filter(|(.., required)| *required);
    let required: Vec<_> = must.map(|(name, ..)| *name).collect();
    json!({
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
        },
    })
}
