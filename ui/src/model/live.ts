// Keeps what is known fresh: lists once, follows the stream, and resumes it after a lost connection.
import { call, Failure, get, hasKey, keepKey, serverNow, withQuery, workloadPath } from '../api/client.ts';
import { follow } from '../api/stream.ts';
import type {
  Cluster,
  ClusterTotals,
  Department,
  Event,
  Node,
  Project,
  Samples,
  Session,
  WhoAmI,
  Workload,
  WorkloadList,
} from '../api/types.ts';
import { isFinal } from './status.ts';
import { change, forget, now } from './store.ts';

const PAGE = 1000;
/** Finished workloads that are kept in memory. */
const FINISHED_MAX = 2000;
const EVENTS_MAX = 500;
/** Events are shown in lots, so that a burst is one repaint. */
const LOT_MS = 60;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

let cursor = 0;
let running: AbortController | null = null;
let waiting: (() => void) | null = null;
/** Where older finished workloads begin. */
let older: string | null = null;

/** Signs in with the code of a link or a token. */
export async function signIn(request: { code: string } | { token: string }) {
  const { body } = await call<Session>('POST', '/session', request);
  keepKey(body.key ?? null);
  change({ user: body.user });
  begin();
}

export async function signOut() {
  await call('DELETE', '/session').catch(() => {});
  end();
}

/** Forgets everything: somebody else may sit down here. */
export function end() {
  stop();
  keepKey(null);
  forget();
}

/** Nothing that was told or asked for before is shown after it. */
function stop() {
  running?.abort();
  running = null;
  lot = [];
  for (const timer of due.values()) clearTimeout(timer);
  due.clear();
}

/** Begins to keep everything fresh, if somebody is signed in. */
export function begin() {
  stop();
  if (!hasKey()) {
    forget();
    return;
  }
  running = new AbortController();
  change({ phase: 'loading', connection: { state: 'connecting' } });
  void keepFresh(running.signal);
}

/** Tries again at once instead of when its time has come. */
export function retryNow() {
  waiting?.();
}

async function keepFresh(signal: AbortSignal) {
  let attempt = 0;
  let listed = false;
  while (!signal.aborted) {
    try {
      if (!listed) {
        await list(signal);
        listed = true;
      }
      const open = () => {
        attempt = 0;
        change({ connection: { state: 'live' } });
        void refresh('owners');
        void refresh('nodes');
        // After an upgrade it is another server.
        get<Cluster>('/cluster', signal).then(
          cluster => change({ cluster }),
          () => {},
        );
      };
      const told = {
        event: take,
        samples: (samples: Samples) => change({ samples }),
        totals: (totals: ClusterTotals) => change({ totals: withNodes(totals) }),
        open,
      };
      await follow(cursor, told, signal);
    } catch (error) {
      if (signal.aborted) return;
      // What the cursor names is not kept any more: list again, and follow from there.
      if (error instanceof Failure && error.status === 410) listed = false;
      else if (error instanceof Failure && error.status === 401) return;
    }
    if (signal.aborted) return;
    const connection = now().connection;
    const since = connection.state === 'lost' ? connection.since : Date.now();
    const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]!;
    attempt += 1;
    change({ connection: { state: 'lost', since, retryAt: Date.now() + pause } });
    await rest(pause, signal);
  }
}

function rest(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer);
      waiting = null;
      signal.removeEventListener('abort', done);
      window.removeEventListener('online', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    waiting = done;
    signal.addEventListener('abort', done);
    window.addEventListener('online', done);
  });
}

async function list(signal: AbortSignal) {
  const isNewest = { owners: question('owners'), nodes: question('nodes') };
  const [who, cluster, projects, departments, nodes] = await Promise.all([
    get<WhoAmI>('/whoami', signal),
    get<Cluster>('/cluster', signal),
    get<{ items: Project[] }>('/projects', signal),
    get<{ items: Department[] }>('/departments', signal),
    get<{ items: Node[] }>('/nodes', signal),
  ]);
  const workloads = new Map<number, Workload>();
  let next: string | null | undefined;
  let first = true;
  do {
    const path = withQuery('/workloads', { finished: false, limit: PAGE, cursor: next });
    const page = await call<WorkloadList>('GET', path, undefined, signal);
    // Everything after the first page began is told again by the stream, so later pages may be newer and do no harm.
    if (first) cursor = Number(page.headers.get('berth-cursor') ?? '0');
    for (const workload of page.body.items) workloads.set(workload.id, workload);
    next = page.body.next;
    if (first) {
      const { user, roles } = who;
      if (isNewest.owners())
        change({
          user,
          roles,
          cluster,
          totals: cluster.totals ?? now().totals,
          projects: projects.items,
          departments: departments.items,
        });
      if (isNewest.nodes()) change({ nodes: nodes.items });
      change({ phase: 'ready', workloads: new Map(workloads) });
    }
    first = false;
  } while (next);
  const path = withQuery('/workloads', { finished: true, deleted: true, limit: 500 });
  const finished = await get<WorkloadList>(path, signal);
  for (const workload of finished.items) workloads.set(workload.id, workload);
  older = finished.next ?? null;
  const events = await get<{ items: Event[] }>(withQuery('/events', { last: 1000 }), signal).catch(() => ({
    items: [],
  }));
  change({
    workloads,
    events: events.items.filter(isTold),
    hasOlder: older !== null,
    decisions: now().decisions + 1,
  });
}

/** Asks for finished workloads that ended before those that are known. */
export async function loadOlder() {
  if (older === null) return;
  const page = await get<WorkloadList>(
    withQuery('/workloads', { finished: true, deleted: true, limit: 500, cursor: older }),
  );
  const workloads = new Map(now().workloads);
  for (const workload of page.items) workloads.set(workload.id, workload);
  older = page.next ?? null;
  change({ workloads, hasOlder: older !== null });
}

let lot: Event[] = [];

function take(event: Event) {
  cursor = Math.max(cursor, event.seq);
  lot.push(event);
  const told = lot;
  if (told.length === 1) setTimeout(() => told === lot && showLot(), LOT_MS);
}

function showLot() {
  const events = lot;
  lot = [];
  const known = now();
  const workloads = new Map(known.workloads);
  const stale = new Set<'owners' | 'nodes'>();
  let decisions = known.decisions;
  for (const event of events) {
    const workload = event.now;
    if (workload) workloads.set(workload.id, workload);
    else if (event.workload_id != null && event.kind === 'hidden') workloads.delete(event.workload_id);
    if (event.kind.startsWith('node')) stale.add('nodes');
    if (!QUIET.has(event.kind)) {
      stale.add('owners');
      decisions += 1;
    }
  }
  keepFew(workloads);
  const shown = events.filter(isTold).map(event => ({ ...event, now: null }));
  change({ workloads, decisions, events: [...known.events, ...shown].slice(-EVENTS_MAX) });
  for (const what of stale) later(what);
}

/** How far somebody is, is shown where they are. */
function isTold(event: Event) {
  return event.kind !== 'progressed';
}

/** These change nobody's share. */
const QUIET = new Set(['progressed', 'checkpointed', 'idle', 'warned', 'hidden', 'task-started', 'running']);

function keepFew(workloads: Map<number, Workload>) {
  if (workloads.size <= FINISHED_MAX) return;
  const finished = [...workloads.values()].filter(workload => isFinal(workload.status));
  if (finished.length <= FINISHED_MAX) return;
  finished.sort((a, b) => (a.ended?.at ?? '').localeCompare(b.ended?.at ?? ''));
  for (const old of finished.slice(0, finished.length - FINISHED_MAX)) workloads.delete(old.id);
}

/** Fair shares and settings are the server's to tell; after a burst of changes they are asked for once. */
const due = new Map<string, ReturnType<typeof setTimeout>>();

function later(what: 'owners' | 'nodes') {
  if (due.has(what)) return;
  due.set(
    what,
    setTimeout(() => {
      due.delete(what);
      void refresh(what);
    }, 400),
  );
}

/** How often each was asked for, and the newest question whose answer is shown. */
const asked = { owners: 0, nodes: 0 };
const shown = { owners: 0, nodes: 0 };

/** Asks; gives whether its answer, once it is there, is the newest. A late answer says what was, and is not shown. */
function question(what: 'owners' | 'nodes'): () => boolean {
  asked[what] += 1;
  const turn = asked[what];
  return () => {
    if (turn < shown[what]) return false;
    shown[what] = turn;
    return true;
  };
}

/** Later totals of a stream have only the nodes that changed. */
function withNodes(totals: ClusterTotals): ClusterTotals {
  const nodes = new Map(now().totals?.by_node.map(node => [node.name, node]));
  for (const node of totals.by_node) nodes.set(node.name, node);
  return { ...totals, by_node: [...nodes.values()] };
}

/** Nodes that did not change stay the same objects, so that their cards need no repaint. */
function kept(nodes: Node[]): Node[] {
  const before = new Map(now().nodes.map(node => [node.name, node]));
  return nodes.map(node => {
    const known = before.get(node.name);
    return known && JSON.stringify(known) === JSON.stringify(node) ? known : node;
  });
}

export async function refresh(what: 'owners' | 'nodes') {
  const signal = running?.signal;
  const isNewest = question(what);
  try {
    if (what === 'nodes') {
      const nodes = await get<{ items: Node[] }>('/nodes', signal);
      if (isNewest()) change({ nodes: kept(nodes.items) });
      return;
    }
    const [projects, departments, who] = await Promise.all([
      get<{ items: Project[] }>('/projects', signal),
      get<{ items: Department[] }>('/departments', signal),
      get<WhoAmI>('/whoami', signal),
    ]);
    const { user, roles } = who;
    if (isNewest()) change({ projects: projects.items, departments: departments.items, user, roles });
  } catch {
    // The stream notices when the server is gone, and everything is asked for again then.
  }
}

/** Has something done to a workload. The answer is shown before the stream tells it, unless that was quicker and knows more. */
export async function command(method: 'POST' | 'DELETE', workload: Workload, rest = '') {
  const before = now().workloads.get(workload.id);
  const { body } = await call<Workload>(method, workloadPath(workload, rest));
  if (now().workloads.get(workload.id) === before) show(body);
}

/** A workload that was submitted is shown before the stream tells of it. */
export function submitted(workload: Workload) {
  if (!now().workloads.has(workload.id)) show(workload);
}

function show(workload: Workload) {
  const workloads = new Map(now().workloads);
  workloads.set(workload.id, workload);
  change({ workloads });
}

export { serverNow };
