//! A gateway's index of its engines' caches, saved for the next gateway.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headstart_core::ReplicaId;
use headstart_index_sync::clock::unix_seconds;
use headstart_index_sync::saved::{Folder, FolderError, SavedIndex, Seal};
use headstart_router::index::{DOUBT_TTL, ResidentBlock};
use headstart_router::stream::StreamStatus;
use headstart_server::{RunningServer, ServeConfig, ServeError, UpstreamConfig, serve};
use support::fake_engine::{BLOCK, FakeEngine};
use support::{embedded, eventually, post, proxy, start};

/// A folder that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("headstart-state-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// Returns a prompt of `blocks` blocks that shares none with another seed's.
fn prompt(seed: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * BLOCK) as u32).map(|at| 100 * seed + at % 97).collect()
}

fn config(upstreams: Vec<UpstreamConfig>, folder: &Temporary) -> ServeConfig {
    ServeConfig { state_dir: Some(folder.0.clone()), ..proxy(upstreams) }
}

async fn gateway(upstreams: Vec<UpstreamConfig>, folder: &Temporary) -> RunningServer {
    start(config(upstreams, folder)).await
}

fn residents(gateway: &RunningServer) -> Vec<ResidentBlock> {
    let mut residents = Vec::new();
    let (index, now) = (gateway.gateway().index(), gateway.gateway().clock.now());
    index.residents(now, &mut |resident| residents.push(resident));
    residents.sort();
    residents
}

/// Returns the number of blocks that a replica holds, and of the doubtful ones among them.
fn held(gateway: &RunningServer, replica: u32) -> (usize, usize) {
    let mut of_it = residents(gateway);
    of_it.retain(|resident| resident.replica == ReplicaId(replica));
    let doubtful = of_it.iter().filter(|resident| resident.is_doubtful);
    (of_it.len(), doubtful.count())
}

async fn eventually_held(gateway: &RunningServer, replica: u32, expected: (usize, usize)) {
    let what = format!("replica {replica} to hold {expected:?}");
    eventually(&what, || held(gateway, replica) == expected).await;
}

async fn eventually_settled(gateway: &RunningServer, replica: u32, status: StreamStatus) {
    let report = || gateway.gateway().stream_report(ReplicaId(replica));
    eventually("a settled stream", || report().is_some_and(|report| report.status == status)).await;
}

/// Returns the replica that a prompt is routed to.
async fn placed(gateway: &RunningServer, engine: &FakeEngine, tokens: &[u32]) -> String {
    let answer = post(gateway, "/v1/completions", &engine.ask(tokens)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.header("x-headstart-replica").expect("named").to_owned()
}

/// Has something published until a gateway that cannot ask for replays has heard it.
async fn until_held(
    gateway: &RunningServer,
    replica: u32,
    expected: (usize, usize),
    publish: impl Fn(),
) {
    for _ in 0..500 {
        publish();
        if held(gateway, replica) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?} instead of {expected:?}", held(gateway, replica));
}

/// A rank publishes prompt 0, 1, … as replica 0, 1, … of a gateway.
async fn store_until_held(gateway: &RunningServer, replica: u32, engine: &FakeEngine, rank: usize) {
    let publish = || engine.store(rank, &prompt(replica, 4));
    until_held(gateway, replica, (4, 0), publish).await;
}

/// Two engines whose replay buffers forget all but the last batch, each with a prompt in it, and
/// what a first gateway saved of them.
async fn saved(folder: &Temporary) -> [FakeEngine; 2] {
    let engines = [FakeEngine::start(1, None).await, FakeEngine::start(1, None).await];
    let upstreams = engines.iter().map(FakeEngine::upstream).collect();
    let first = gateway(upstreams, folder).await;
    for (replica, engine) in engines.iter().enumerate() {
        store_until_held(&first, replica as u32, engine, 0).await;
    }
    first.shutdown().await;
    engines
}

#[tokio::test]
async fn what_a_gateway_knew_the_next_one_doubts_and_uses() {
    let folder = Temporary::new("restart");
    let engines = saved(&folder).await;
    // The other way round: what was replica 0 is replica 1 now.
    let upstreams: Vec<_> = engines.iter().rev().map(FakeEngine::upstream).collect();
    let second = gateway(upstreams.clone(), &folder).await;
    assert_eq!([held(&second, 0), held(&second, 1)], [(4, 4), (4, 4)]);
    for (seed, replica) in [(0, "1"), (1, "0")] {
        let tokens = prompt(seed, 6);
        assert_eq!(placed(&second, &engines[0], &tokens).await, replica);
    }
    // Events find what they name: a new block its restored parent, a removal what it removes.
    until_held(&second, 1, (5, 4), || {
        engines[0].store_from(0, &prompt(0, 5), 4);
    })
    .await;
    until_held(&second, 0, (2, 2), || {
        engines[1].remove(0, &prompt(1, 4), 2);
    })
    .await;
    until_held(&second, 1, (5, 0), || engines[0].store(0, &prompt(0, 5))).await;
    second.shutdown().await;
    // Once more, with one engine less.
    let third = gateway(upstreams[..1].to_vec(), &folder).await;
    assert_eq!([held(&third, 0), held(&third, 1)], [(2, 2), (0, 0)]);
    third.shutdown().await;
}

#[tokio::test]
async fn a_whole_replay_leaves_exactly_what_the_engine_holds() {
    let folder = Temporary::new("whole");
    let engine = FakeEngine::start(1, Some(1000)).await;
    let first = gateway(vec![engine.upstream()], &folder).await;
    engine.store(0, &prompt(1, 4));
    engine.store(0, &prompt(2, 4));
    eventually_held(&first, 0, (8, 0)).await;
    first.shutdown().await;
    // While no gateway listened.
    engine.remove(0, &prompt(1, 4), 1);
    engine.store(0, &prompt(3, 2));
    let second = gateway(vec![engine.upstream()], &folder).await;
    eventually_settled(&second, 0, StreamStatus::Complete).await;
    assert_eq!(held(&second, 0), (1 + 4 + 2, 0));
    second.shutdown().await;
}

#[tokio::test]
async fn a_replay_that_does_not_reach_back_leaves_the_rest_doubtful() {
    let folder = Temporary::new("truncated");
    let engine = FakeEngine::start(1, Some(2)).await;
    let first = gateway(vec![engine.upstream()], &folder).await;
    // Something live, so that the subscription is there before the rest.
    engine.store(0, &prompt(1, 1));
    eventually_held(&first, 0, (1, 0)).await;
    eventually_settled(&first, 0, StreamStatus::Complete).await;
    engine.store(0, &prompt(1, 4));
    engine.store(0, &prompt(2, 4));
    eventually_held(&first, 0, (8, 0)).await;
    first.shutdown().await;
    // The replay brings the last two blocks of prompt 2 and nothing of prompt 1.
    let second = gateway(vec![engine.upstream()], &folder).await;
    eventually_settled(&second, 0, StreamStatus::Partial).await;
    assert_eq!(held(&second, 0), (8, 6));
    second.shutdown().await;
}

#[tokio::test]
async fn another_life_of_the_engine_owes_nothing_to_the_last() {
    let folder = Temporary::new("life");
    let mut engine = FakeEngine::start(1, Some(1000)).await;
    let first = gateway(vec![engine.upstream()], &folder).await;
    engine.store(0, &prompt(1, 4));
    eventually_held(&first, 0, (4, 0)).await;
    first.shutdown().await;
    engine.restart_publisher(0).await;
    let second = gateway(vec![engine.upstream()], &folder).await;
    // It has told nothing since its start, and says so.
    eventually_held(&second, 0, (0, 0)).await;
    engine.store(0, &prompt(2, 2));
    eventually_held(&second, 0, (2, 0)).await;
    second.shutdown().await;
    engine.restart_publisher(0).await;
    engine.store(0, &prompt(3, 3));
    let third = gateway(vec![engine.upstream()], &folder).await;
    eventually_held(&third, 0, (3, 0)).await;
    third.shutdown().await;
}

#[tokio::test]
async fn who_is_killed_leaves_what_was_saved_last() {
    let folder = Temporary::new("killed");
    let engine = FakeEngine::start(1, None).await;
    let mut often = config(vec![engine.upstream()], &folder);
    often.limits.save_interval = Duration::from_millis(10);
    let first = start(often).await;
    let size = || fs::metadata(folder.file("index")).map_or(0, |file| file.len());
    eventually("a save", || size() > 0).await;
    let empty = size();
    store_until_held(&first, 0, &engine, 0).await;
    // Four keys and as many handles, of 8 bytes each.
    eventually("a save of it", || size() >= empty + 64).await;
    // No last save: the task ends with its server.
    let task_ends = first.gateway().clone();
    drop(first);
    eventually("the end", || std::sync::Arc::strong_count(&task_ends) <= 2).await;
    // And a save that had begun, and will never be renamed.
    fs::write(folder.file("index.tmp"), b"half of").expect("writes");
    fs::set_permissions(folder.file("index.tmp"), fs::Permissions::from_mode(0o644)).expect("sets");
    let second = restarted(config(vec![engine.upstream()], &folder)).await;
    assert_eq!(held(&second, 0), (4, 4));
    second.shutdown().await;
    assert!(!folder.file("index.tmp").exists(), "the next save took its place");
    assert_eq!(mode(&folder.file("index")), 0o600);
}

/// A server in a folder that the last one may still be leaving.
async fn restarted(config: ServeConfig) -> RunningServer {
    for _ in 0..500 {
        match serve(config.clone()).await {
            Err(ServeError::State(FolderError::InUse(_))) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            started => return started.expect("it starts"),
        }
    }
    panic!("the folder stays locked");
}

#[tokio::test]
async fn what_cannot_be_trusted_is_not_used() {
    let folder = Temporary::new("refused");
    let engines = saved(&folder).await;
    let upstreams: Vec<_> = engines.iter().map(FakeEngine::upstream).collect();
    let path = folder.file("index");
    let file = fs::read(&path).expect("it was saved");
    let given = || config(upstreams.clone(), &folder);
    let starts_empty = async |bytes: &[u8], config: ServeConfig, why: &str| {
        fs::write(&path, bytes).expect("writes");
        let gateway = start(config).await;
        assert!(residents(&gateway).is_empty(), "{why}");
        placed(&gateway, &engines[0], &prompt(0, 4)).await;
        gateway.shutdown().await;
    };
    for end in [0, 7, 40, file.len() / 2, file.len() - 1] {
        starts_empty(&file[..end], given(), "cut off").await;
    }
    for at in [0, 8, 12, 30, 50, file.len() / 2, file.len() - 1] {
        let mut changed = file.clone();
        changed[at] ^= 4;
        starts_empty(&changed, given(), "changed").await;
    }
    let other_secret = ServeConfig { index_secret: Some(7), ..given() };
    starts_empty(&file, other_secret, "another secret").await;
    // With nothing changed it is used: what was refused was refused for its reason.
    fs::write(&path, &file).expect("writes");
    let used = gateway(upstreams.clone(), &folder).await;
    assert_eq!([held(&used, 0), held(&used, 1)], [(4, 4), (4, 4)]);
    used.shutdown().await;
}

/// Makes the last save `age_s` seconds old.
fn age(folder: &Temporary, age_s: f64) {
    let secret = fs::read_to_string(folder.file("secret")).expect("drawn");
    let seal = Seal::new(&format!("upstream {}", secret.trim()));
    let folder = Folder::open(&folder.0).expect("nobody uses it");
    let saved = folder.read(&seal).expect("its own").expect("saved");
    let saved_at = unix_seconds() - age_s;
    let saved = SavedIndex { saved_at, ..saved };
    folder.write(&saved, &seal).expect("writes");
}

#[tokio::test]
async fn doubts_are_as_old_as_the_save_and_what_is_too_old_is_not_used() {
    const OLD: Duration = Duration::from_secs(100);
    let folder = Temporary::new("old");
    let engines = saved(&folder).await;
    let upstreams: Vec<_> = engines.iter().map(FakeEngine::upstream).collect();
    age(&folder, OLD.as_secs_f64());
    let started = std::time::Instant::now();
    // Another start, and another save, makes nothing younger.
    for _ in 0..3 {
        let restored = gateway(upstreams.clone(), &folder).await;
        assert_eq!([held(&restored, 0), held(&restored, 1)], [(4, 4), (4, 4)]);
        let held_in = |later: Duration| {
            let (mut count, now) = (0, restored.gateway().clock.now());
            let index = restored.gateway().index();
            index.residents(now + later, &mut |_| count += 1);
            count
        };
        // What is restored is forgotten at one time, whatever this machine takes meanwhile.
        assert_eq!(held_in(DOUBT_TTL - OLD), 0);
        let left = (DOUBT_TTL - OLD).checked_sub(started.elapsed() + Duration::from_secs(1));
        assert_eq!(held_in(left.expect("a start takes less")), 8);
        restored.shutdown().await;
    }
    for age_s in [DOUBT_TTL.as_secs_f64(), 1e9, -100.0] {
        age(&folder, age_s);
        let empty = gateway(upstreams.clone(), &folder).await;
        assert!(residents(&empty).is_empty(), "{age_s}");
        // Its last save would be young again, and must be refused for another reason: it is empty.
        empty.shutdown().await;
        let again = gateway(upstreams.clone(), &folder).await;
        assert!(residents(&again).is_empty());
        again.shutdown().await;
    }
}

#[tokio::test]
async fn an_engine_that_serves_another_model_starts_empty() {
    let folder = Temporary::new("model");
    let engines = saved(&folder).await;
    engines[1].serve("another");
    let upstreams = engines.iter().map(FakeEngine::upstream).collect();
    let second = gateway(upstreams, &folder).await;
    assert_eq!([held(&second, 0), held(&second, 1)], [(4, 4), (0, 0)]);
    second.shutdown().await;
}

#[tokio::test]
async fn an_engine_that_is_down_holds_nothing() {
    let folder = Temporary::new("down");
    let [first, second] = saved(&folder).await;
    let upstreams = vec![first.upstream(), second.upstream()];
    drop(first);
    let gateway = gateway(upstreams, &folder).await;
    assert_eq!([held(&gateway, 0), held(&gateway, 1)], [(0, 0), (4, 4)]);
    gateway.shutdown().await;
}

#[tokio::test]
async fn ranks_are_known_again() {
    let folder = Temporary::new("ranks");
    let engine = FakeEngine::start(2, None).await;
    let first = gateway(vec![engine.upstream()], &folder).await;
    store_until_held(&first, 1, &engine, 1).await;
    first.shutdown().await;
    let other = FakeEngine::start(1, Some(1)).await;
    let upstreams = vec![other.upstream(), engine.upstream()];
    let second = gateway(upstreams, &folder).await;
    assert_eq!(placed(&second, &engine, &prompt(1, 6)).await, "2");
    assert_eq!(engine.ranks_asked(), [Some("1".to_owned())]);
    second.shutdown().await;
}

#[tokio::test]
async fn the_folder_is_its_owners_and_tells_no_keys() {
    let folder = Temporary::new("files");
    let engine = FakeEngine::start(1, Some(1000)).await;
    let first = gateway(vec![engine.upstream()], &folder).await;
    engine.store(0, &prompt(1, 4));
    eventually_held(&first, 0, (4, 0)).await;
    // One gateway at a time.
    let second = serve(config(vec![engine.upstream()], &folder)).await;
    let in_use = matches!(second, Err(ServeError::State(FolderError::InUse(_))));
    assert!(in_use, "another gateway uses it");
    let keys: Vec<_> = residents(&first).iter().map(|block| block.key).collect();
    first.shutdown().await;
    assert_eq!(mode(&folder.0), 0o700);
    for file in ["secret", "index", "lock"] {
        assert_eq!(mode(&folder.file(file)), 0o600, "{file}");
    }
    let index = fs::read(folder.file("index")).expect("saved");
    let secret = fs::read_to_string(folder.file("secret")).expect("drawn");
    for key in keys {
        let is_told = index.windows(8).any(|bytes| bytes == key.0.to_le_bytes());
        assert!(!is_told, "{key:?}");
    }
    // The secret stays. A damaged one is replaced, and then nothing saved before is believed.
    let second = gateway(vec![engine.upstream()], &folder).await;
    second.shutdown().await;
    let unchanged = fs::read_to_string(folder.file("secret")).expect("there");
    assert_eq!(unchanged, secret);
    fs::write(folder.file("secret"), "12345\n").expect("writes");
    let third = gateway(vec![engine.upstream()], &folder).await;
    third.shutdown().await;
    let drawn = fs::read_to_string(folder.file("secret")).expect("there");
    assert!(drawn.len() == secret.len() && drawn != secret, "{drawn}");
}

#[tokio::test]
async fn embedded_replicas_have_nothing_to_keep() {
    let folder = Temporary::new("embedded");
    let config = ServeConfig { state_dir: Some(folder.0.clone()), ..embedded(1, 64) };
    let refused = serve(config).await.err().expect("refused").to_string();
    assert!(refused.contains("--upstream"), "{refused}");
    assert!(!folder.0.exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_is_said_at_once() {
    let folder = Temporary::new("file");
    fs::write(&folder.0, "in the way").expect("writes");
    let engine = FakeEngine::start(1, None).await;
    let refused = serve(config(vec![engine.upstream()], &folder)).await;
    let error = refused.err().expect("a file is no folder").to_string();
    let file = format!("{} is a file", folder.0.display());
    assert!(error.contains("--state-dir") && error.contains(&file), "{error}");
    fs::remove_file(&folder.0).expect("cleans up");
}
