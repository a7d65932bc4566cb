//! The same documents in another order.

use serde_json::{Value, json};

use crate::clean;
use crate::defect::Defect;
use crate::log::{Form, Mark, Request};
use crate::prose::Prose;

pub(super) fn defects() -> Vec<Defect> {
    vec![
        defect("by score, before the question", Form::Bodies, shuffled, plainly),
        defect("as numbered elements", Form::LiteLlm, shuffled, as_elements),
        defect("as a list of results in JSON", Form::Bodies, shuffled, as_json),
        defect("two change places", Form::Batch, two_swapped, plainly),
        defect("the best at both ends", Form::Bodies, best_at_ends, as_elements),
        in_text(),
    ]
}

type Documents = Vec<(String, String)>;

fn defect(
    name: &'static str,
    form: Form,
    reorder: fn(&mut Documents, &mut Prose),
    write: fn(&Documents) -> String,
) -> Defect {
    let number = name.len() as u64;
    let mut log = clean::passages(80 + number).written_as(form);
    for request in &mut log.requests {
        write_documents(request, |documents| write(documents));
    }
    let mut sources = clean::passages(80 + number).requests.into_iter();
    Defect::new("document-order", name, log, move |request, prose| {
        request.body = sources.next().expect("as many").body;
        let mut order = Vec::new();
        write_documents(request, |documents| {
            reorder(documents, prose);
            order = documents.iter().map(|(title, _)| title.clone()).collect();
            write(documents)
        });
        Mark::Order(order)
    })
}

/// Takes the documents out of the first question and puts in what `write` makes of them.
fn write_documents(request: &mut Request, mut write: impl FnMut(&mut Documents) -> String) {
    let text = crate::log::text_of(&mut request.messages()[1]);
    let (documents, question) = text.split_once("</passages>").expect("passages");
    let documents = documents.trim_start_matches("<passages>\n");
    let parts = documents.split("### ").filter(|part| !part.is_empty());
    let mut parsed: Documents = parts
        .map(|part| {
            let (title, body) = part.split_once('\n').expect("a title");
            (title.to_owned(), body.trim_end().to_owned())
        })
        .collect();
    *text = format!("{}{}", write(&mut parsed), question);
}

fn shuffled(documents: &mut Documents, prose: &mut Prose) {
    prose.rng.shuffle(documents);
}

fn two_swapped(documents: &mut Documents, prose: &mut Prose) {
    let at = prose.rng.below(documents.len() - 1);
    documents.swap(at, at + 1);
}

/// By score, which is new for each question; then every second one to the end.
fn best_at_ends(documents: &mut Documents, prose: &mut Prose) {
    prose.rng.shuffle(documents);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for (rank, document) in documents.drain(..).enumerate() {
        let side = if rank % 2 == 0 { &mut front } else { &mut back };
        side.push(document);
    }
    back.reverse();
    documents.extend(front.into_iter().chain(back));
}

fn plainly(documents: &Documents) -> String {
    let all = documents.iter().map(|(title, text)| format!("### {title}\n{text}\n\n"));
    format!("<passages>\n{}</passages>", all.collect::<String>())
}

/// Numbered by place, so that only what stands in them moves.
fn as_elements(documents: &Documents) -> String {
    let all = documents.iter().enumerate().map(|(index, (title, text))| {
        let index = index + 1;
        format!(
            "<document index=\"{index}\">\n<source>{title}</source>\n<document_content>\n{text}\n\
             </document_content>\n</document>\n"
        )
    });
    format!("<documents>\n{}</documents>", all.collect::<String>())
}

fn as_json(documents: &Documents) -> String {
    let all = documents.iter();
    let all = all.map(|(title, text)| json!({"title": title, "text": text, "kind": "handbook"}));
    let all: Vec<Value> = all.collect();
    format!("Results of the search: {}", Value::Array(all))
}

fn in_text() -> Defect {
    let log = clean::text_passages(88);
    Defect::new("document-order", "in a text prompt", log, |request, prose| {
        let prompt = request.body["prompt"].as_str().expect("text").to_owned();
        let first = prompt.find("Passage 1").expect("passages");
        let last = prompt.rfind("Question: ").expect("a question");
        let passages = prompt[first..last].trim_end();
        let mut passages: Vec<&str> = passages.split("\n\n").collect();
        prose.rng.shuffle(&mut passages);
        let (front, end) = (&prompt[..first], &prompt[last..]);
        request.body["prompt"] = format!("{front}{}\n\n{end}", passages.join("\n\n")).into();
        let titles = passages.iter().filter_map(|passage| passage.lines().next());
        Mark::Order(titles.map(str::to_owned).collect())
    })
}
