//! Tables for a terminal.

use crate::host_memory::published::Gain;
use headstart_core::figures::{counted, thousands};
use headstart_sim::wild::WildModel;
use headstart_terminal::aligned;

use super::{Gains, WildReport, WildRow};

/// Seconds above which a tenth is enough.
const LONG_S: f64 = 10.0;

/// A table per model, the gains, and what they say.
pub(crate) fn table(report: &WildReport) -> String {
    let mut text = facts(report);
    for model in models(report) {
        text += &format!("\n{}\n{}", title(model, report), aligned(&rows(report, model)));
    }
    let gains = report.gains();
    if !gains.is_empty() {
        text += &format!(
            "\ncompared with the baselines lru, fifo, lfu, s3fifo (percent; least and most of the \
             seeds)\n{}",
            aligned(&beside(&gains))
        );
    }
    let refused: u64 = report.rows.iter().map(WildRow::refused).sum();
    if refused > 0 {
        text += &format!(
            "\n{} refused in all runs together: longer than the device memory, or the queue was \
             full\n",
            counted(refused, "request")
        );
    }
    for verdict in report.verdicts() {
        text += &format!("\n{verdict}.");
    }
    text.trim_end().to_owned()
}

fn facts(report: &WildReport) -> String {
    let facts = &report.facts;
    let mut text = format!("{}\n", facts.name);
    for told in &facts.told {
        text += &format!("{told}\n");
    }
    text += &format!(
        "{:.1} minutes, the first {:.1} not counted as warm-up; {} of the traffic; blocks of {} \
         tokens; answers of one token\n\
         ×N: host memory, in multiples of device memory; block hits: cached blocks over blocks\n\
         QTTFT: time to first token from arrival, average\n",
        facts.minutes,
        facts.warm_up_minutes,
        counted(facts.seeds as u64, "draw"),
        facts.block_tokens,
    );
    text
}

fn models(report: &WildReport) -> Vec<WildModel> {
    let mut models: Vec<WildModel> = Vec::new();
    for row in &report.rows {
        if !models.contains(&row.model) {
            models.push(row.model);
        }
    }
    models
}

fn title(model: WildModel, report: &WildReport) -> String {
    let engine = model.engine();
    let block_bytes = model.shape.kv_token_bytes() * f64::from(report.facts.block_tokens);
    format!(
        "{} on {} (80 GB): {} tokens of device memory, {:.3} MiB per block, host at {:.0} GB/s, \
         {:.0} µs of prefill per token",
        model.shape.name,
        counted(u64::from(model.gpus), "A800"),
        thousands(engine.kv_tokens as u64),
        block_bytes / f64::from(1 << 20),
        model.host_bytes_per_s() / 1e9,
        engine.cost.token_s * 1e6,
    )
}

/// Policies by host memory: block hit rates, then times.
fn rows(report: &WildReport, model: WildModel) -> Vec<Vec<String>> {
    let own = || report.rows.iter().filter(|row| row.model == model);
    let (mut hosts, mut policies) = (Vec::<f64>::new(), Vec::<&str>::new());
    for row in own() {
        if !hosts.contains(&row.host_times) {
            hosts.push(row.host_times);
        }
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    let of =
        |policy: &str, host: f64| own().find(|row| row.policy == policy && row.host_times == host);
    let names = |first: &str, rest: &str| {
        let first = hosts.iter().take(1).map(|host| format!("{first}×{host}"));
        let rest = hosts.iter().skip(1).map(|host| format!("{rest}×{host}"));
        first.chain(rest).collect::<Vec<_>>()
    };
    let head = ["policy".to_owned()].into_iter();
    let head = head.chain(names("block hits %, host ", ""));
    let mut rows = vec![head.chain(names("QTTFT s, host ", "")).collect::<Vec<_>>()];
    for policy in policies {
        let cells = |shown: fn(&WildRow) -> String| {
            hosts.iter().map(move |&host| of(policy, host).map_or_else(String::new, shown))
        };
        let line = [policy.to_owned()].into_iter();
        let line = line.chain(cells(|row| format!("{:.2}", row.blocks().rate() * 100.0)));
        rows.push(line.chain(cells(|row| seconds(row.qttft_s(|qttft| qttft.mean)))).collect());
    }
    rows
}

fn seconds(value: f64) -> String {
    if value >= LONG_S { format!("{value:.1}") } else { format!("{value:.2}") }
}

fn beside(gains: &[Gains<'_>]) -> Vec<Vec<String>> {
    let head = [
        "model",
        "host",
        "policy",
        "best baseline",
        "hits over it",
        "over the worst",
        "QTTFT against it",
        "against the slowest",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(gains.iter().map(|gains| {
        let figure = |figure: fn(&Gain) -> f64| {
            let (least, most) = gains.range(figure);
            match gains.by_seed.len() {
                1 => format!("{least:+.1}"),
                _ => format!("{:+.1} ({least:+.1}, {most:+.1})", gains.mean(figure)),
            }
        };
        vec![
            gains.row.model.shape.name.to_owned(),
            format!("×{}", gains.row.host_times),
            gains.row.policy.clone(),
            gains.best.policy.clone(),
            figure(|gain| gain.over_best),
            figure(|gain| gain.over_worst),
            figure(|gain| gain.qttft_best),
            figure(|gain| gain.qttft_worst),
        ]
    }));
    rows
}
