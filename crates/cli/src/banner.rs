//! Startup banner of the server.

use anyhow::Result;
use headstart_core::figures::counted;
use headstart_server::RunningServer;
use headstart_server::gateway::Fleet;

/// One ready line with the URL and one with the dashboard's, and for the toy a word of warning.
pub(crate) fn ready(server: &RunningServer, is_toy: bool) -> Result<()> {
    let url = format!("http://{}", server.address());
    let what = match &server.gateway().fleet {
        Fleet::Embedded(embedded) => {
            let replicas = embedded.replicas.len();
            let replicas = counted(replicas as u64, "replica");
            format!("{} on {replicas}", embedded.name)
        }
        Fleet::Upstreams(upstreams) => counted(upstreams.len() as u64, "upstream"),
    };
    // The toy answers every request, so a first user could take its words for a broken model.
    if is_toy {
        headstart_terminal::note(
            "The built-in toy model generates random words. For real answers, pass a Llama, Qwen2 \
             or Qwen3 checkpoint: --model ./FOLDER or --model OWNER/NAME",
        );
    }
    let ready = format!("headstart is ready: {url}/v1 ({what})\n  dashboard: {url}/");
    headstart_terminal::line(&ready)
}
