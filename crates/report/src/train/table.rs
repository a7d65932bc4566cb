//! The table for a terminal.

use headstart_core::figures::{counted, thousands};
use headstart_predict::training::{Lift, TrainReport};
use headstart_predict::{Counts, Scores};
use headstart_terminal::aligned;

use super::words;

/// All figures, and the sentences below them.
pub fn table(report: &TrainReport) -> String {
    let made = made(report).into_iter();
    let made = made.map(|[name, what]| format!("{name}: {what}"));
    let facts: Vec<String> = inputs(report).into_iter().chain(made).collect();
    let mut text = format!("{}\n\n{}", facts.join("\n"), aligned(&scores(report)));
    if report.curve.len() > 1 {
        text += &format!("\n{}", aligned(&curve(report)));
    }
    for sentence in words(report) {
        text += &format!("\n{sentence}");
    }
    text
}

/// Returns the inputs and their split, one line each.
pub(super) fn inputs(report: &TrainReport) -> Vec<String> {
    let mut facts = Vec::new();
    for input in &report.inputs {
        facts.push(format!(
            "{}: {}, {}, {} ({} of unknown outcome)",
            input.file,
            counted(input.conversations as u64, "conversation"),
            counted(input.groups as u64, "first prompt"),
            counted(input.turns as u64, "turn"),
            thousands(input.unknown as u64),
        ));
        facts.extend(input.remarks.iter().cloned());
    }
    let part = |name: &str, part: Counts| {
        format!(
            "{name} {} of {}",
            counted(part.samples as u64, "turn"),
            counted(part.conversations as u64, "conversation")
        )
    };
    let parts = &report.parts;
    facts.push(format!(
        "{}, {}, {}; split by conversation and first prompt, seed {}",
        part("train", parts.train),
        part("validation", parts.validation),
        part("test", parts.test),
        report.seed
    ));
    facts
}

/// Returns the properties of the model and its training cost.
pub(super) fn made(report: &TrainReport) -> Vec<[String; 2]> {
    let definition = &report.definition;
    let text = &definition.text;
    let mut read = vec![match text.window {
        _ if report.inputs.iter().all(|input| input.kind == "trace") => "no text".to_owned(),
        0 => format!("the prompt, {} words", text.budget_words),
        window => format!("the prompt and the {window} before it, {} words", text.budget_words),
    }];
    if definition.text.answers {
        read.push("answers".to_owned());
    }
    if definition.parts.count() > 1 {
        read.push("the prompt by itself".to_owned());
    }
    read.push("turn count".to_owned());
    if definition.behaviour {
        read.push("lengths and gap".to_owned());
    }
    let times = &report.times;
    let classifiers = report.epochs.last().map_or(0, |epoch| epoch.member);
    let mut took = format!(
        "reading {:.1} s, embedding {:.1} s ({} texts, {} known), training {:.1} s ({} of {})",
        times.read_s,
        times.embed_s,
        thousands(times.texts as u64),
        thousands(times.texts_known as u64),
        times.train_s,
        counted(report.epochs.len() as u64, "epoch"),
        counted(classifiers as u64, "classifier"),
    );
    if times.curve_s > 0.0 {
        took += &format!(", learning curve {:.1} s", times.curve_s);
    }
    let mut made = vec![
        ["encoder".to_owned(), definition.encoder.clone()],
        ["reads".to_owned(), read.join(", ")],
        ["data".to_owned(), report.fingerprint.chars().take(16).collect()],
        ["took".to_owned(), took],
    ];
    if let Some(model) = &report.model {
        made.push(["model".to_owned(), model.clone()]);
    }
    made
}

/// The parts and corpora, by name.
pub(super) fn rows(report: &TrainReport) -> Vec<(String, &Scores)> {
    let mut rows = vec![
        ("train".to_owned(), &report.train),
        ("validation".to_owned(), &report.validation),
        ("test".to_owned(), &report.test),
        ("test, turn count only".to_owned(), &report.turn_only),
    ];
    for other in &report.elsewhere {
        let file = &other.input.file;
        rows.push((file.clone(), &other.model));
        rows.push((format!("{file}, turn count only"), &other.turn_only));
    }
    rows
}

fn scores(report: &TrainReport) -> Vec<Vec<String>> {
    let header = ["", "samples", "continued", "MCC", "95 %", "macro F1", "ROC-AUC", "ECE"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for (name, scores) in rows(report) {
        table.push(vec![
            name,
            thousands(scores.samples as u64),
            format!("{:.1} %", 100.0 * scores.base_rate),
            format!("{:.3}", scores.mcc),
            format!("{:.2} … {:.2}", scores.mcc_low, scores.mcc_high),
            format!("{:.3}", scores.macro_f1),
            format!("{:.3}", scores.auc),
            format!("{:.3}", scores.ece),
        ]);
    }
    let Lift { mcc, low, high } = report.lift;
    let mut lift = vec![String::new(); header.len()];
    lift[0] = "lift".to_owned();
    lift[3] = format!("{mcc:+.3}");
    lift[4] = format!("{low:.2} … {high:.2}");
    table.insert(5, lift);
    if let Some(best) = report.attainable_mcc {
        let mut line = vec![String::new(); header.len()];
        line[0] = "best attainable".to_owned();
        line[3] = format!("{best:.3}");
        table.insert(6, line);
    }
    table
}

fn curve(report: &TrainReport) -> Vec<Vec<String>> {
    let header = ["trained on", "samples", "MCC", "95 %", "ROC-AUC"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for point in &report.curve {
        let scores = &point.scores;
        table.push(vec![
            counted(point.conversations as u64, "conversation"),
            thousands(point.samples as u64),
            format!("{:.3}", scores.mcc),
            format!("{:.2} … {:.2}", scores.mcc_low, scores.mcc_high),
            format!("{:.3}", scores.auc),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use headstart_predict::training::Elsewhere;

    use super::super::testing;
    use super::*;

    fn check(report: &TrainReport, parts: &[&str]) {
        let table = table(report);
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let table = table.lines().map(squeezed).collect::<Vec<_>>().join("\n");
        for part in parts {
            assert!(table.contains(part), "{table} lacks {part}");
        }
    }

    #[test]
    fn the_table_says_what_was_read_what_was_found_and_what_it_took() {
        let mut report = testing::report();
        check(
            &report,
            &[
                "chats.jsonl: 2,000 conversations, 1,990 first prompts, 4,010 turns (10 of",
                "a remark",
                "test 600 turns of 300 conversations; split by conversation and first prompt",
                "before it, 512 words, the prompt by itself, turn count",
                "data: 0123456789abcdef\n",
                "model: model.hsp",
                "lift +0.300 0.20 … 0.40",
            ],
        );
        report.attainable_mcc = Some(0.5);
        report.curve = testing::curve(&[0.2, 0.4]);
        report.elsewhere.push(Elsewhere {
            input: report.inputs[0].clone(),
            seen_before: 3,
            model: report.validation.clone(),
            turn_only: report.turn_only.clone(),
            lift: report.lift,
        });
        check(
            &report,
            &[
                "best attainable 0.500",
                "1,000 conversations",
                "chats.jsonl, turn count only",
                "On the unseen part of chats.jsonl: MCC 0.420",
                "3 conversations of chats.jsonl left out",
                "of which the model has 80 %",
            ],
        );
    }
}
