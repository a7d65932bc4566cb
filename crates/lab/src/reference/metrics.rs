//! The metrics of `GET /metrics`.

use headstart_server::metrics::Metrics;

/// The page of all metrics.
pub(super) fn page() -> String {
    let mut page = super::heading("Metrics");
    page += "`GET /metrics` has these in Prometheus' text format. Names that begin with `vllm:` \
             have vLLM's meaning, so its dashboards work. A metric is absent until it has a \
             value.\n\n";
    page += &super::row(&["metric", "type", "labels", "meaning"]);
    page += "|---|---|---|---|\n";
    for metric in Metrics::catalog() {
        let labels = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let name = format!("`{}`", metric.name);
        page += &super::row(&[&name, metric.kind, &labels, metric.help]);
    }
    page
}
