//! `headstart shadow`: what other fleets would have found, by a server that plays them.

use anyhow::Result;
use clap::Args;
use headstart_core::figures::ago;
use headstart_core::figures::counted;
use headstart_terminal as output;
use serde_json::Value;

use crate::server::{ServerOptions, one_line};

/// Largest report that is read; one has some eleven rows.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// Cells of the longest bar.
const BAR: usize = 30;

/// Show what shadow fleets would have hit.
#[derive(Args, Debug)]
#[command(after_help = include_str!("shadow.help.txt"))]
pub(crate) struct ShadowCommand {
    #[command(flatten)]
    server: ServerOptions,
    /// Print the server's JSON unchanged
    #[arg(long)]
    json: bool,
}

/// Asks the server.
pub(crate) fn run(shadow: &ShadowCommand) -> Result<()> {
    let report = shadow.server.json("/debug/shadow", REPORT_BYTES_MAX)?;
    output::line(&if shadow.json { report.to_string() } else { output::fitted(&table(&report)) })
}

fn table(report: &Value) -> String {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let (requests, left_out) = (count(&report["requests"]), count(&report["left_out"]));
    let requests = counted(requests, "request");
    let replicas = counted(count(&report["replicas"]), "replica");
    let cold = cold(report);
    let mut text = format!(
        "{requests} simulated on {replicas} each ({left_out} left out)\n{cold}\n\
         {:<16} {:>14}  cached prompt tokens\n",
        "strategy", "blocks/replica"
    );
    text += &row("upstream itself", "", &report["upstream"]);
    for arm in report["arms"].as_array().into_iter().flatten() {
        let strategy = one_line(arm["strategy"].as_str().unwrap_or("?"));
        text += &row(&strategy, &count(&arm["blocks"]).to_string(), arm);
    }
    if let Some(sentence) = sentence(report) {
        text += &format!("\n{sentence}");
    }
    text.trim_end().to_owned()
}

/// Reports how much of an hour the arms have seen: they begin with empty caches.
fn cold(report: &Value) -> String {
    // A gateway of another version may not report how long it has seen.
    let (Some(seconds), Some(share)) =
        (report["seconds"].as_f64(), report["share_of_hour"].as_f64())
    else {
        return String::new();
    };
    let seen = ago(seconds);
    // Hits over a longer time than the arms have seen are unknown: a large cache is still filling.
    if share < 1.0 {
        format!(
            "They began empty and have seen {seen}, {:.0} % of an hour: larger caches may yet find \
             more.\n",
            share * 100.0
        )
    } else {
        format!("They began empty and have seen {seen}.\n")
    }
}

fn row(name: &str, blocks: &str, found: &Value) -> String {
    match found["hit_rate"].as_f64() {
        None => format!("{name:<16} {blocks:>14}  not known\n"),
        Some(rate) => {
            // The rate comes from another program, so it is bounded before it becomes a length.
            let bar = "█".repeat((rate.clamp(0.0, 1.0) * BAR as f64).round() as usize);
            format!("{name:<16} {blocks:>14}  {:>5.1} %  {bar}\n", rate * 100.0)
        }
    }
}

/// The best of all, against what there is.
fn sentence(report: &Value) -> Option<String> {
    let now = report["upstream"]["hit_rate"].as_f64()?;
    let arms = report["arms"].as_array()?.iter();
    let known = arms.filter_map(|arm| Some((arm["hit_rate"].as_f64()?, arm)));
    let (rate, best) = known.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let name = one_line(best["strategy"].as_str()?);
    let points = (rate - now) * 100.0;
    // A difference below a twentieth of a point is shown as 0.0 or is noise.
    Some(if points > 0.05 {
        format!(
            "The best, {name} with {} a replica, would have found {points:.1} points more \
             than the upstream did.",
            counted(best["blocks"].as_u64().unwrap_or(0), "block")
        )
    } else {
        "None would have found more than the upstream did.".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_names_the_best() {
        let report = json!({
            "replicas": 4, "requests": 10, "left_out": 1, "seconds": 720.0, "share_of_hour": 0.2,
            "upstream": {"hit_rate": 0.25},
            "arms": [
                {"strategy": "random", "blocks": 100, "hit_rate": 0.125},
                {"strategy": "precise", "blocks": 100, "hit_rate": 0.5},
                {"strategy": "cost", "blocks": 100, "hit_rate": null},
            ],
        });
        let text = table(&report);
        assert!(text.contains("10 requests simulated on 4 replicas each (1 left out)"), "{text}");
        assert!(text.contains("have seen 12 min, 20 % of an hour"), "{text}");
        assert!(text.contains("The best, precise with 100 blocks a replica"), "{text}");
        assert!(text.contains("25.0 points more"), "{text}");
        assert!(text.contains("not known"), "{text}");
    }

    #[test]
    fn without_the_upstreams_word_nothing_is_compared() {
        let report = json!({"upstream": {"hit_rate": null}, "arms": []});
        assert_eq!(sentence(&report), None);
    }
}
