// A request to run something: what can be asked for, and how the same is typed.
import type { Kind, WorkloadRequest } from '../api/types.ts';
import { quoted } from './command.ts';
import type { Draft, Parts } from './form.ts';
import * as form from './form.ts';
import * as shape from './shape.ts';

/** What a new request begins with. */
const IMAGE = 'berth/quickstart';

/** How often a failed run is started again when that has no end. */
const FOR_EVER = 2 ** 32 - 1;

/** The image of a command that is a program of the machine. */
const HOST = 'host';

const from = (...values: string[]) => values.map(value => ({ value, text: value }));

const KINDS: { value: Kind | 'notebook'; text: string }[] = [
  { value: 'train', text: 'train: may borrow, may be preempted' },
  { value: 'interactive', text: 'interactive: within quota, not preempted' },
  { value: 'notebook', text: 'notebook: JupyterLab, ready to use' },
  { value: 'distributed', text: 'distributed: a gang of workers' },
  { value: 'inference', text: 'inference: serves, not preempted' },
];

/**
 * Everything that can be asked for, in the order in which a command says it. The kind has a notebook beside those of the API; a name
 * to begin with, and the line that was typed, are no fields.
 */
export const PARTS = {
  name: {
    label: 'Name',
    flag: '',
    shape: {
      ...shape.text,
      read: text => {
        if (!/^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(text))
          throw new shape.Wrong('Use lower-case letters, digits and dashes, not at the ends');
        return text;
      },
      words: (_, name) => [quoted(name)],
    },
    placeholder: 'generated when empty',
  },
  project: { label: 'Project', flag: '-p', shape: shape.choice() },
  image: {
    label: 'Image',
    flag: '-i',
    shape: shape.text,
    options: from(IMAGE, 'python', 'bash', 'ubuntu', 'jupyter/base-notebook'),
    mono: true,
  },
  gpus: {
    label: 'GPUs per worker',
    flag: '-g',
    shape: {
      ...shape.amount,
      read: text => {
        const value = shape.amount.read(text);
        if (value > 1 && !Number.isInteger(value))
          throw new shape.Wrong('Whole GPUs, or a fraction below 1 such as 0.5');
        return value;
      },
    },
    hint: 'A whole number, or a fraction below 1 such as 0.5',
  },
  kind: {
    label: 'Type',
    flag: '',
    shape: {
      ...shape.choice<Kind>(),
      words: (_, kind) => {
        const flags: Partial<Record<string, string>> = {
          interactive: '--interactive',
          notebook: '--jupyter',
          inference: '--inference',
        };
        return flags[kind] ? [flags[kind]] : [];
      },
    },
    options: KINDS,
  },
  preemptible: {
    label: 'Preemptible',
    flag: '--preemptible',
    // That training may not is said by the API alone.
    shape: { ...shape.check, read: text => text === 'yes', write: value => (value ? 'yes' : 'no') },
  },
  workers: { label: 'Workers', flag: '--workers', shape: shape.whole(1), placeholder: '1' },
  min_workers: {
    label: 'Minimum workers',
    flag: '--min-workers',
    shape: shape.whole(1),
    placeholder: 'all',
  },
  framework: {
    label: 'Launcher',
    flag: '--framework',
    shape: shape.choice(),
    options: [
      { value: '', text: 'nothing: the command on each worker' },
      { value: 'torchrun', text: 'torchrun' },
      { value: 'mpi', text: 'mpirun, from the first worker' },
    ],
  },
  restart: {
    label: 'When a worker fails',
    flag: '--restart',
    shape: shape.choice(),
    options: [
      { value: '', text: 'by its type' },
      { value: 'gang', text: 'all start again' },
      { value: 'worker', text: 'it alone starts again' },
    ],
  },
  completions: {
    label: 'Completions',
    flag: '--completions',
    shape: shape.whole(1),
    hint: 'Runs in all, each with its own BERTH_INDEX',
  },
  parallelism: { label: 'Parallelism', flag: '--parallelism', shape: shape.whole(1) },
  priority: {
    label: 'Priority',
    flag: '--priority',
    shape: {
      ...shape.text,
      read: text => (/^-?\d+$/.test(text) ? Number(text) : text),
      write: String,
      words: (flag, value) => [flag, quoted(String(value))],
    },
    options: from('very-low', 'low', 'medium', 'medium-high', 'high', 'very-high', 'critical'),
    placeholder: 'by its type',
  },
  max_run_secs: { label: 'Ends after', flag: '--max-run-time', shape: shape.span, placeholder: '12h' },
  backoff_limit: {
    label: 'Tries after a failure',
    flag: '--backoff-limit',
    shape: shape.whole(0),
    placeholder: 'by its type',
  },
  grace_secs: { label: 'Time to save its state', flag: '--grace', shape: shape.span, placeholder: '30s' },
  gpu_memory: {
    label: 'GPU memory, instead of GPUs',
    flag: '--gpu-memory',
    shape: shape.bytes,
    placeholder: '8Gi',
  },
  gpu_devices: {
    label: 'Devices per worker',
    flag: '--gpu-devices',
    shape: shape.whole(1),
    placeholder: '1',
  },
  gpu_models: { label: 'GPU models', flag: '--gpu-models', shape: shape.names, placeholder: 'any' },
  cpu: { label: 'CPU cores', flag: '--cpu', shape: shape.amount },
  memory: { label: 'Memory', flag: '--memory', shape: shape.bytes, placeholder: '16Gi' },
  large_shm: { label: 'Large shared memory', flag: '--large-shm', shape: shape.check },
  node_pool: { label: 'Node pool', flag: '--node-pool', shape: shape.text, placeholder: 'default' },
  node_selector: {
    label: 'Node labels',
    flag: '--node-selector',
    shape: shape.pairs('LABEL=VALUE'),
    placeholder: 'rack=r1',
    mono: true,
  },
  topology_required: {
    label: 'Workers must share',
    flag: '--topology',
    shape: shape.text,
    placeholder: 'node, or a label',
  },
  topology_preferred: {
    label: 'Workers should share',
    flag: '--topology-preferred',
    shape: shape.text,
    placeholder: 'node, or a label',
  },
  spread: { label: 'Spread workers over nodes', flag: '--spread', shape: shape.check },
  apart: { label: 'No two workers on one node', flag: '--apart', shape: shape.check },
  environment: {
    label: 'Environment',
    flag: '-e',
    shape: shape.pairs('NAME=VALUE'),
    placeholder: 'NAME=VALUE',
    mono: true,
  },
  working_dir: { label: 'Working folder', flag: '--working-dir', shape: shape.text, mono: true },
  tty: { label: 'Allocate a terminal', flag: '--tty', shape: shape.check },
  stdin: { label: 'Attach stdin', flag: '--stdin', shape: shape.check },
  run_as: {
    label: 'Runs as',
    flag: '--run-as',
    shape: shape.text,
    placeholder: 'USER or USER:GROUP',
  },
  host_network: { label: 'Network of the node, on Kubernetes', flag: '--host-network', shape: shape.check },
  privileged: { label: 'Privileged, on Kubernetes', flag: '--privileged', shape: shape.check },
  runtime: {
    label: 'Run by',
    flag: '--runtime',
    shape: shape.choice(),
    options: [
      { value: '', text: 'the machine, as a process' },
      { value: 'oci', text: 'an OCI runtime' },
      { value: 'docker', text: 'Docker or Podman' },
    ],
  },
  local_image: { label: 'Never pull the image', flag: '--local-image', shape: shape.check },
  progress_pattern: {
    label: 'Progress regex',
    flag: '--progress-pattern',
    shape: shape.text,
    placeholder: 'common forms are known',
    mono: true,
  },
  mounts: {
    label: 'Host folders',
    flag: '-v',
    shape: shape.folders,
    placeholder: '/data:/data:ro',
    mono: true,
  },
  volumes: { label: 'Volumes', flag: '--pvc', shape: shape.volumes, placeholder: 'NAME:/path', mono: true },
  ports: { label: 'Ports', flag: '--port', shape: shape.ports, placeholder: '8888' },
  service_type: {
    label: 'Reached by',
    flag: '--service-type',
    shape: shape.choice(),
    options: [
      { value: '', text: 'the address of the server' },
      ...from('portforward', 'loadbalancer', 'nodeport', 'ingress'),
    ],
  },
  args: {
    label: 'Arguments for what the image runs',
    flag: '--args',
    shape: shape.shell,
    mono: true,
  },
  command: {
    label: 'Command',
    flag: '--',
    shape: { ...shape.shell, words: (_, value) => ['--', ...value.map(quoted)] },
    placeholder: 'what the image runs, when empty',
    mono: true,
    wide: true,
  },
} satisfies Parts<WorkloadRequest, 'caller' | 'command_line' | 'name_prefix' | 'notebook'>;

export type PartId = keyof typeof PARTS;

/** What is asked for in most cases. */
export const FIRST: PartId[] = ['name', 'project', 'kind', 'gpus', 'image', 'max_run_secs', 'command'];

/** The rest, under the headings that the command's own help has. */
export const MORE: { title: string; ids: PartId[] }[] = [
  {
    title: 'Workers and runs',
    ids: [
      'workers',
      'min_workers',
      'framework',
      'restart',
      'completions',
      'parallelism',
      'priority',
      'backoff_limit',
      'grace_secs',
      'preemptible',
    ],
  },
  { title: 'Resources', ids: ['gpu_memory', 'gpu_devices', 'gpu_models', 'cpu', 'memory', 'large_shm'] },
  {
    title: 'Placement',
    ids: ['node_pool', 'node_selector', 'topology_required', 'topology_preferred', 'spread', 'apart'],
  },
  {
    title: 'Process',
    ids: [
      'environment',
      'args',
      'working_dir',
      'run_as',
      'runtime',
      'progress_pattern',
      'tty',
      'stdin',
      'host_network',
      'privileged',
      'local_image',
    ],
  },
  { title: 'Data and ports', ids: ['mounts', 'volumes', 'ports', 'service_type'] },
];

/** What follows from the rest of a request, and so need not be said. */
function usual(request: Partial<WorkloadRequest>): Partial<WorkloadRequest> {
  return {
    image: HOST,
    framework: 'none',
    runtime: 'process',
    node_pool: 'default',
    backoff_limit: { interactive: 0, inference: FOR_EVER, train: 6, distributed: 6 }[request.kind ?? 'train'],
    grace_secs: 30,
  };
}

/** A request as it was said, without what the server made of it. */
function said(request: Partial<WorkloadRequest>): object {
  const set: Record<string, unknown> = { ...request };
  for (const [id, value] of Object.entries(usual(request))) if (set[id] === value) delete set[id];
  const command = request.command ?? [];
  let args = request.args ?? [];
  if (request.notebook) {
    set.kind = 'notebook';
    args = args.filter(word => !word.startsWith('--ServerApp.base_url='));
  }
  if (request.completions != null) {
    // They follow from how many are worked at together.
    delete set.workers;
    delete set.restart;
  }
  // After a command, arguments are words like all others.
  set.command = command.length > 0 ? [...command, ...args] : undefined;
  set.args = command.length > 0 ? undefined : args;
  return set;
}

/** The fields of a form that asks for the same again, or for something new. */
export function beginRequest(request: Partial<WorkloadRequest> | null, project: string): Draft {
  const draft = form.begin(PARTS, said(request ?? { kind: 'train', image: IMAGE, gpus: 1 }));
  // Whoever asks for the same is somebody else, with an account of their own.
  return { ...draft, project: draft.project || project, run_as: '' };
}

/** The fields after one of them was changed; a notebook has an image of its own. */
export function changed(draft: Draft, id: PartId, value: string): Draft {
  const next = { ...draft, [id]: value };
  if (id !== 'kind') return next;
  if (value === 'notebook' && draft.image === IMAGE) next.image = '';
  if (draft.kind === 'notebook' && draft.image === '') next.image = IMAGE;
  return next;
}

/** Whether a part means anything beside the others. */
export function applies(id: PartId, draft: Draft): boolean {
  switch (id) {
    // Training may be preempted in any case.
    case 'preemptible':
      return draft.kind !== 'train' && draft.kind !== 'distributed';
    // A command has its own.
    case 'args':
      return (draft.command ?? '').trim() === '';
    case 'workers':
    case 'min_workers':
    case 'framework':
    case 'restart':
    case 'completions':
    case 'parallelism':
      return draft.kind !== 'notebook';
    default:
      return true;
  }
}

function line(words: Record<string, string[]>): string {
  const all = Object.keys(PARTS).flatMap(id => words[id] ?? []);
  return ['berth', 'submit', ...all.filter(word => word !== '')].join(' ');
}

export interface Asked {
  request: WorkloadRequest;
  /** What is wrong, as far as that can be told here. */
  problems: Record<string, string>;
  /** The command that asks for the same. */
  command: string;
}

/** What the fields mean. */
export function lowerRequest(draft: Draft): Asked {
  // That training may not be preempted is kept, though it has no field.
  const meant = ([id, text]: [string, string]) =>
    applies(id as PartId, draft) || (id === 'preemptible' && text === 'no');
  const { set, problems, words } = form.lower(PARTS, Object.fromEntries(Object.entries(draft).filter(meant)));
  const command = line(words);
  if (Array.isArray(set.command)) {
    const [program, ...args] = set.command as string[];
    Object.assign(set, { command: [program], args });
  }
  if (draft.kind === 'notebook') Object.assign(set, { kind: 'interactive', notebook: true });
  if ((draft.project ?? '') === '') problems.project = 'Every workload belongs to a project';
  if (draft.kind === 'distributed' && !problems.workers && !(Number(set.workers) > 1))
    problems.workers = 'A gang has two workers or more';
  if (set.gpus !== undefined && set.gpu_memory !== undefined)
    problems.gpu_memory = 'Give GPUs or GPU memory, not both';
  // Everybody who sees the workload sees how it was asked for; values of variables may be secrets.
  const names = Object.keys((set.environment as Record<string, string> | undefined) ?? {});
  const environment = names.flatMap(name => [PARTS.environment.flag, quoted(`${name}=...`)]);
  const command_line = line({ ...words, environment });
  return { request: { ...set, command_line } as unknown as WorkloadRequest, problems, command };
}

/** The command that asks for the same. */
export function submitCommand(request: WorkloadRequest): string {
  return line(form.words(PARTS, said(request)));
}
