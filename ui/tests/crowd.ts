// A stand-in for a server with more work and nodes than this machine could run: it lists what it made up, and tells of changes
// as often as it is asked to. The pages are the real ones, and so is the way they ask.
import { readFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import type { Cluster, Event, Node, Project, Workload } from '../src/api/types.ts';

export const DIST = join(import.meta.dirname, '../dist');
const TYPES: Record<string, string> = {
  html: 'text/html',
  js: 'text/javascript',
  css: 'text/css',
  svg: 'image/svg+xml',
};
const PROJECTS = 40;
const GPUS = 8;
const START = Date.now() - 3_600_000;

const at = (ms: number) => new Date(ms).toISOString();

function node(index: number): Node {
  const name = `node${String(index).padStart(4, '0')}`;
  const devices = Array.from({ length: GPUS }, (_, index) => ({
    index,
    model: 'Tesla V100-SXM2-32GB',
    memory: 32 * 2 ** 30,
    allocated: 0,
    workloads: [],
  }));
  return {
    name,
    state: 'Ready',
    pool: 'default',
    labels: { rack: `r${index % 40}` },
    devices,
    gpus_allocated: 0,
    cpu: 80,
    cpu_allocated: 0,
    memory: 512 * 2 ** 30,
    memory_allocated: 0,
    workloads: [],
  } as unknown as Node;
}

/** The first run, one on each GPU in turn; the rest wait. */
function workload(id: number, nodes: Node[]): Workload {
  const on = nodes[Math.floor((id - 1) / GPUS)];
  const base = {
    id,
    name: `train-${id}`,
    project: `team-${id % PROJECTS}`,
    user: `user-${id % 100}`,
    kind: 'train',
    priority: 50,
    preemptible: true,
    submitted_at: at(START + id * 10),
    gpus_requested: 1,
    workers_min: 1,
    workers_max: 1,
    runs: on ? 1 : 0,
    failures: 0,
    preemptions: 0,
    request: { name: `train-${id}`, project: `team-${id % PROJECTS}`, image: 'berth/quickstart', gpus: 1 },
  };
  const placed = {
    status: 'Running',
    gpus_allocated: 1,
    running_since: at(START + id * 20),
    started_at: at(START + id * 20),
    tasks: [
      { rank: 0, node: on?.name, devices: [(id - 1) % GPUS], gpus: 1, status: 'Running', extra: false },
    ],
    progress: { percent: id % 100, utilisation: 50 + (id % 50), loss: '0.5', at: at(START) },
  };
  const waits = { status: 'Pending', gpus_allocated: 0, tasks: [] };
  return { ...base, ...(on ? placed : waits) } as unknown as Workload;
}

export class Crowd {
  readonly workloads: Workload[];
  readonly nodes: Node[];
  private readonly projects: Project[];
  private readonly streams = new Set<ServerResponse>();
  private seq = 1;
  private readonly server: Server;

  constructor(workloads: number, nodes: number) {
    this.nodes = Array.from({ length: nodes }, (_, index) => node(index));
    this.workloads = Array.from({ length: workloads }, (_, index) => workload(index + 1, this.nodes));
    this.projects = Array.from(
      { length: PROJECTS },
      (_, index) =>
        ({
          name: `team-${index}`,
          settings: { quota: (nodes * GPUS) / PROJECTS },
          allocated: 0,
          allocated_non_preemptible: 0,
          fair_share: (nodes * GPUS) / PROJECTS,
          waiting: 0,
          running_count: 0,
          waiting_count: 0,
        }) as unknown as Project,
    );
    this.server = createServer((request, response) => this.answer(request.url ?? '/', response));
  }

  async listen(): Promise<string> {
    await new Promise<void>(resolve => this.server.listen(0, '127.0.0.1', resolve));
    const address = this.server.address();
    if (address === null || typeof address === 'string') throw new Error('it has no port');
    return `http://127.0.0.1:${address.port}`;
  }

  close() {
    for (const stream of this.streams) stream.destroy();
    this.server.close();
  }

  /** A workload is a little further, and everybody is told. */
  progress(id: number, percent: number) {
    const before = this.workloads[id - 1]!;
    const after = { ...before, progress: { ...before.progress, percent, at: at(Date.now()) } } as Workload;
    this.workloads[id - 1] = after;
    this.tell({ kind: 'progressed', message: `${percent} %` }, after);
  }

  /** What runs on a GPU makes way for something that waited. */
  swap(leaves: number, comes: number) {
    const from = this.workloads[leaves - 1]!;
    const to = this.workloads[comes - 1]!;
    const { tasks, gpus_allocated, running_since, started_at, status, progress } = from;
    const waiting = {
      ...from,
      tasks: [],
      gpus_allocated: 0,
      running_since: null,
      status: 'Pending',
    } as Workload;
    const running = { ...to, tasks, gpus_allocated, running_since, started_at, status, progress } as Workload;
    this.workloads[leaves - 1] = waiting;
    this.workloads[comes - 1] = running;
    this.tell({ kind: 'evicted', message: `stopped for ${to.name}` }, waiting);
    this.tell({ kind: 'started', message: 'started' }, running);
  }

  private tell(what: { kind: string; message: string }, now: Workload) {
    this.seq += 1;
    const event: Event = {
      seq: this.seq,
      at: at(Date.now()),
      level: 'normal',
      workload: `${now.project}/${now.name}`,
      workload_id: now.id,
      project: now.project,
      ...what,
      now,
    };
    for (const stream of this.streams) stream.write(`id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`);
  }

  private answer(url: string, response: ServerResponse) {
    const { pathname, searchParams } = new URL(url, 'http://crowd');
    if (!pathname.startsWith('/api/')) return this.file(pathname, response);
    response.setHeader('berth-dashboard', 'crowd');
    response.setHeader('berth-cursor', String(this.seq));
    if (pathname === '/api/v1/events/stream') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': hello\n\n');
      this.streams.add(response);
      response.on('close', () => this.streams.delete(response));
      return;
    }
    response.writeHead(pathname === '/api/v1/session' ? 201 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(this.body(pathname.replace('/api/v1', ''), searchParams)));
  }

  private body(path: string, query: URLSearchParams): unknown {
    const grant = { user: 'ada', role: 'admin', scope: 'all' };
    if (path === '/session') return { user: 'ada', key: 'crowd' };
    if (path === '/whoami') return { user: 'ada', roles: [grant] };
    if (path === '/cluster') return this.cluster();
    if (path === '/projects') return { items: this.projects };
    if (path === '/nodes') return { items: this.nodes };
    if (path === '/workloads' && query.get('finished') === 'false') {
      const from = Number(query.get('cursor') ?? '0');
      const limit = Number(query.get('limit') ?? '100');
      const next = from + limit < this.workloads.length ? String(from + limit) : null;
      return { items: this.workloads.slice(from, from + limit), next };
    }
    if (path.endsWith('/why'))
      return { waits: true, rule: 'no-capacity', text: 'no room', numbers: {}, held_by: [] };
    if (path === '/series/points') return { name: query.get('name'), points: [] };
    return { items: [] };
  }

  private cluster(): Cluster {
    return {
      version: '0.1.0',
      mode: 'embedded',
      started_at: at(START),
      folder: '/tmp',
      nodes: this.nodes.length,
      nodes_ready: this.nodes.length,
      gpus: this.nodes.length * GPUS,
      gpus_allocated: 0,
      running_count: 0,
      waiting_count: 0,
      projects: PROJECTS,
      cursor: this.seq,
      declared: true,
    } as unknown as Cluster;
  }

  private file(path: string, response: ServerResponse) {
    const name = /\.[a-z0-9]+$/.test(path) ? path : '/index.html';
    const type = TYPES[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream';
    response.writeHead(200, { 'content-type': type });
    response.end(readFileSync(join(DIST, name)));
  }
}
