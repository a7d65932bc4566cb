//! CSV: one line per sweep, point, arm and seed.

use super::{ExperimentReport, sweep_name};

/// The header and all lines.
pub(crate) fn csv(report: &ExperimentReport) -> String {
    let header = "sweep,x,arm,policy,cache_tokens,charge_tokens,seed,hit_rate,requests,\
                  prompt_tokens,cached_tokens,computed_tokens_per_s,mcc,preemptions,refused";
    let mut text = vec![header.to_owned()];
    for sweep in report.sweeps() {
        for line in report.lines(sweep) {
            for (seed, run) in (1..).zip(line.runs) {
                let fields = [
                    sweep_name(sweep).to_owned(),
                    line.shown.x.to_string(),
                    line.shown.arm.clone(),
                    line.group.arm.policy.clone(),
                    line.group.size_tokens.to_string(),
                    line.group.arm.charge_tokens.to_string(),
                    format!("{seed}"),
                    run.hit_rate.to_string(),
                    run.requests.to_string(),
                    run.prompt_tokens.to_string(),
                    run.cached_tokens.to_string(),
                    run.computed_per_s.to_string(),
                    run.mcc.to_string(),
                    run.preemptions.to_string(),
                    run.refused.to_string(),
                ];
                text.push(fields.join(","));
            }
        }
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn every_line_has_the_headers_columns() {
        let report = testing::report(&[("lru", 6, &[0.25, 0.5]), ("oracle", 6, &[0.5])]);
        let text = csv(&report);
        let columns: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [columns[0]; 4], "{text}");
        let line = text.lines().nth(2).expect("the second seed");
        assert!(line.starts_with("size,6,lru,lru,6,0,2,0.5,10,"), "{line}");
    }
}
