//! The formats of traces and logs.

use headstart_trace::Format;
use headstart_trace::format::export::TOOLS;
use headstart_trace::format::request_log::{LINE_BYTES_MAX, fields_read};

/// The page of all formats.
pub(super) fn page() -> String {
    let mut page = super::heading("Formats of traces and logs");
    page += "A file may be plain, gzip or zstd. Its first line decides the format; `--format` \
             names it otherwise.\n\n";
    page += &super::row(&["format", "holds", "recognised by"]);
    page += "|---|---|---|\n";
    for format in Format::all() {
        let (holds, known_by) = format.about();
        page += &super::row(&[&format!("`{format}`"), holds, known_by]);
    }
    page += &format!(
        "\n## Fields of a request log\n\nOne JSON object per line, at most {} MiB; an array of \
         objects is read like lines. Each field is optional except the prompt. If a row has \
         several fields, the first that can be read counts. They may be in the object or in the \
         request's body.\n\n",
        LINE_BYTES_MAX >> 20
    );
    page += &super::row(&["what", "fields"]);
    page += "|---|---|\n";
    for (what, fields) in fields_read() {
        let fields = fields.iter().map(|field| format!("`{field}`"));
        page += &super::row(&[what, &fields.collect::<Vec<_>>().join(", ")]);
    }
    page += "\n## Files of other tools\n\nThese are read as request logs. A record without a \
             request is passed over and counted. An object may be over several lines. UTF-16 with \
             a byte order mark is read.\n\n";
    page += &super::row(&["tool", "read", "to log prompts"]);
    page += "|---|---|---|\n";
    for row in TOOLS {
        page += &super::row(row);
    }
    page
}
