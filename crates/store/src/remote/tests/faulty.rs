//! A store in memory that fails as real ones do, when told to or at random.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use headstart_core::Rng;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};

/// Faults to inject; counts are of requests to come.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Whether the store is unreachable.
    pub(super) is_down: bool,
    /// Answers of which the first is never sent.
    pub(super) hang: usize,
    /// Requests that fail without having done anything.
    pub(super) fail: usize,
    /// Writes that are refused, for a reason of rights.
    pub(super) is_read_only: bool,
    /// Bodies that end too early.
    pub(super) cut: usize,
    /// Bodies with a wrong bit.
    pub(super) flip: usize,
    /// Parts that do not arrive.
    pub(super) drop_parts: usize,
    /// One request in this many, drawn at random, fails in one of these ways; 0: no request does.
    pub(super) one_of: usize,
    pub(super) rng: Option<Rng>,
    /// Requests by method.
    pub(super) puts: usize,
    pub(super) gets: usize,
    pub(super) lists: usize,
    pub(super) uploads: usize,
    pub(super) aborts: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Faulty {
    pub(super) inner: Arc<dyn ObjectStore>,
    pub(super) faults: Arc<Mutex<Faults>>,
}

/// Fate of one request.
enum Fate {
    Normal,
    Hangs,
    Fails,
    /// It is carried out, and the answer gets lost.
    Unanswered,
}

fn unreachable() -> Error {
    Error::Generic { store: "Faulty", source: "status 503".into() }
}

fn takes(count: &mut usize) -> bool {
    let is_due = *count > 0;
    *count = count.saturating_sub(1);
    is_due
}

impl Faulty {
    pub(super) fn new() -> Self {
        Self { inner: Arc::new(InMemory::new()), faults: Arc::default() }
    }

    /// Changes the faults, or reads the counts.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.faults.lock().expect("no test panicked with it"))
    }

    fn fate(&self) -> Fate {
        self.with(|faults| {
            if faults.is_down || takes(&mut faults.fail) {
                return Fate::Fails;
            }
            if takes(&mut faults.hang) {
                return Fate::Hangs;
            }
            let Some(rng) = faults.rng.as_mut().filter(|_| faults.one_of > 0) else {
                return Fate::Normal;
            };
            match rng.below(3 * faults.one_of) {
                0 => Fate::Fails,
                1 => Fate::Unanswered,
                2 => {
                    faults.cut += 1;
                    Fate::Normal
                }
                _ => Fate::Normal,
            }
        })
    }

    async fn ask<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fate() {
            Fate::Normal => request.await,
            Fate::Hangs => futures::future::pending().await,
            Fate::Fails => Err(unreachable()),
            Fate::Unanswered => {
                let _ = request.await;
                Err(unreachable())
            }
        }
    }

    fn may_write(&self, path: &Path) -> Result<()> {
        if self.with(|faults| faults.is_read_only) {
            Err(Error::PermissionDenied { path: path.to_string(), source: "read only".into() })
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Faulty")
    }
}

/// Copies a payload, so that the store does not keep the caller's own memory.
fn copied(payload: &PutPayload) -> PutPayload {
    let pieces = payload.iter().flatten().copied();
    Bytes::from(pieces.collect::<Vec<u8>>()).into()
}

fn damaged(answer: GetResult, faults: &mut Faults) -> GetResult {
    let (cut, flip) = (takes(&mut faults.cut), takes(&mut faults.flip));
    let GetResultPayload::Stream(stream) = answer.payload else {
        return answer;
    };
    let spoil = move |piece: Result<Bytes>| {
        let mut bytes = piece?.to_vec();
        if cut {
            bytes.truncate(bytes.len() / 2);
        }
        if flip && let Some(byte) = bytes.first_mut() {
            *byte ^= 4;
        }
        Ok(bytes.into())
    };
    GetResult { payload: GetResultPayload::Stream(stream.map(spoil).boxed()), ..answer }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.with(|faults| faults.puts += 1);
        self.may_write(path)?;
        let payload = copied(&payload);
        self.ask(self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.with(|faults| faults.uploads += 1);
        self.may_write(path)?;
        let inner = self.ask(self.inner.put_multipart_opts(path, options)).await?;
        let store = self.clone();
        Ok(Box::new(FaultyUpload { inner, store }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.with(|faults| faults.gets += 1);
        let is_head = options.head;
        let answer = self.ask(self.inner.get_opts(path, options)).await?;
        if is_head { Ok(answer) } else { Ok(self.with(|faults| damaged(answer, faults))) }
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.ask(self.inner.get_ranges(path, ranges)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let gone = self.inner.delete_stream(paths);
        let answer = move |gone: Result<Path>| {
            let store = store.clone();
            async move { store.ask(async { gone }).await }
        };
        gone.then(answer).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.with(|faults| faults.lists += 1);
        let store = self.clone();
        let found = self.inner.list(prefix);
        let begin = async move {
            match store.ask(async { Ok(()) }).await {
                Ok(()) => found,
                Err(error) => futures::stream::iter([Err(error)]).boxed(),
            }
        };
        futures::stream::once(begin).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.ask(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.may_write(to)?;
        self.ask(self.inner.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    store: Faulty,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let is_lost = self.store.with(|faults| takes(&mut faults.drop_parts));
        let part = self.inner.put_part(copied(&payload));
        if is_lost { Box::pin(async { Err(unreachable()) }) } else { part }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let store = self.store.clone();
        store.ask(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.with(|faults| faults.aborts += 1);
        self.inner.abort().await
    }
}
