// A form that does what `berth submit` does, and shows how that would be typed.
import { useMemo, useState } from 'react';
import { call } from '../api/client.ts';
import type { Kind, Preview, Submitted, WorkloadRequest } from '../api/types.ts';
import { quoted, seconds, split, submitCommand, time } from '../model/command.ts';
import { submitted } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { Dialog } from '../parts/dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { CheckField, SelectField, TextField } from '../parts/field.tsx';
import { Button, Copyable } from '../parts/small.tsx';
import { say } from '../parts/toast.tsx';

interface Draft {
  name: string;
  project: string;
  kind: Kind;
  image: string;
  command: string;
  gpus: string;
  gpuMemory: string;
  workers: string;
  minWorkers: string;
  cpu: string;
  memory: string;
  priority: string;
  preemptible: boolean;
  maxRun: string;
  ports: string;
  environment: string;
  mounts: string;
  volumes: string;
  nodePool: string;
  nodeSelector: string;
  workingDir: string;
}

type Problems = Partial<Record<keyof Draft, string>>;

const KINDS: { value: Kind; text: string }[] = [
  { value: 'train', text: 'train: may borrow, may be preempted' },
  { value: 'interactive', text: 'interactive: within quota, not preempted' },
  { value: 'distributed', text: 'distributed: a gang of workers' },
  { value: 'inference', text: 'inference: serves, not preempted' },
];

const IMAGES = ['berth/quickstart', 'python', 'bash', 'ubuntu', 'jupyter/base-notebook'];

/** Fields of a draft by the field of the request that the server names. */
const FIELDS: Record<string, keyof Draft> = {
  gpu_memory: 'gpuMemory',
  min_workers: 'minWorkers',
  max_run_secs: 'maxRun',
  node_pool: 'nodePool',
  node_selector: 'nodeSelector',
  working_dir: 'workingDir',
  args: 'command',
};

function begin(from: WorkloadRequest | null, project: string): Draft {
  const pairs = (map: Record<string, string> | undefined) =>
    Object.entries(map ?? {})
      .map(([name, value]) => `${name}=${value}`)
      .join('\n');
  const text = (value: unknown) => (value === undefined || value === null ? '' : String(value));
  return {
    name: from?.name ?? '',
    project: from?.project || project,
    kind: from?.kind ?? 'train',
    image: from?.image === 'host' ? '' : (from?.image ?? 'berth/quickstart'),
    command: [...(from?.command ?? []), ...(from?.args ?? [])].map(quoted).join(' '),
    gpus: from ? text(from.gpus) : '1',
    gpuMemory: text(from?.gpu_memory),
    workers: text(from?.workers),
    minWorkers: text(from?.min_workers),
    cpu: text(from?.cpu),
    memory: text(from?.memory),
    priority: text(from?.priority),
    preemptible: from?.preemptible ?? false,
    maxRun: from?.max_run_secs ? time(from.max_run_secs) : '',
    ports: (from?.ports ?? []).join(' '),
    environment: pairs(from?.environment),
    mounts: (from?.mounts ?? [])
      .map(one => `${one.source}:${one.target}${one.read_only ? ':ro' : ''}`)
      .join('\n'),
    volumes: (from?.volumes ?? [])
      .map(one => `${one.name}:${one.target}${one.read_only ? ':ro' : ''}`)
      .join('\n'),
    nodePool: from?.node_pool && from.node_pool !== 'default' ? from.node_pool : '',
    nodeSelector: pairs(from?.node_selector),
    workingDir: text(from?.working_dir),
  };
}

/** The request that a draft means, and what is wrong with it as far as that can be told here. */
function lower(draft: Draft): { request: WorkloadRequest; problems: Problems } {
  const problems: Problems = {};
  const number = (field: keyof Draft, what: string): number | undefined => {
    const text = String(draft[field]).trim();
    if (text === '') return undefined;
    const value = Number(text);
    if (!Number.isFinite(value) || value < 0) problems[field] = `${what} is a number, such as 2`;
    return value;
  };
  const lines = (text: string) =>
    text
      .split('\n')
      .map(line => line.trim())
      .filter(Boolean);
  const pairs = (field: 'environment' | 'nodeSelector') => {
    const map: Record<string, string> = {};
    for (const line of lines(draft[field])) {
      const at = line.indexOf('=');
      if (at < 1) problems[field] = `Write NAME=VALUE, one in a line; “${line}” is none`;
      else map[line.slice(0, at)] = line.slice(at + 1);
    }
    return Object.keys(map).length > 0 ? map : undefined;
  };
  const mounts = (field: 'mounts' | 'volumes') => {
    const found = lines(draft[field]).map(line => {
      const [source, target, how] = line.split(':');
      if (!source || !target || (how !== undefined && how !== 'ro' && how !== 'rw')) {
        problems[field] = `Write WHAT:PATH or WHAT:PATH:ro, one in a line; “${line}” is neither`;
      }
      return { source: source ?? '', target: target ?? '', read_only: how === 'ro' };
    });
    return found.length > 0 ? found : undefined;
  };
  if (draft.project === '') problems.project = 'Every workload belongs to a project';
  if (draft.name !== '' && !/^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(draft.name)) {
    problems.name = 'Small letters, digits and dashes, not at the ends';
  }
  const maxRun = draft.maxRun.trim() === '' ? undefined : seconds(draft.maxRun);
  if (maxRun === null) problems.maxRun = 'A time such as 90m or 12h';
  const ports = draft.ports
    .split(/[\s,]+/)
    .filter(Boolean)
    .map(Number);
  if (ports.some(port => !Number.isInteger(port) || port < 1 || port > 65_535))
    problems.ports = 'Ports are numbers up to 65535';
  if (draft.gpus.trim() !== '' && draft.gpuMemory.trim() !== '')
    problems.gpuMemory = 'Give GPUs or GPU memory, not both';
  const priority = draft.priority.trim();
  const request = {
    project: draft.project,
    kind: draft.kind,
    image: draft.image.trim(),
    runtime: 'process',
    name: draft.name.trim() || undefined,
    command: split(draft.command).length > 0 ? split(draft.command) : undefined,
    gpus: number('gpus', 'GPUs'),
    // Bytes may be written as people write them.
    gpu_memory: draft.gpuMemory.trim() || undefined,
    workers: number('workers', 'The count'),
    min_workers: number('minWorkers', 'The count'),
    cpu: number('cpu', 'CPU'),
    memory: draft.memory.trim() || undefined,
    priority: priority === '' ? undefined : /^-?\d+$/.test(priority) ? Number(priority) : priority,
    preemptible:
      draft.preemptible && (draft.kind === 'interactive' || draft.kind === 'inference') ? true : undefined,
    max_run_secs: maxRun ?? undefined,
    ports: ports.length > 0 ? ports : undefined,
    environment: pairs('environment'),
    node_selector: pairs('nodeSelector'),
    mounts: mounts('mounts'),
    volumes: mounts('volumes')?.map(({ source, target, read_only }) => ({ name: source, target, read_only })),
    node_pool: draft.nodePool.trim() || undefined,
    working_dir: draft.workingDir.trim() || undefined,
  } as unknown as WorkloadRequest;
  return { request, problems };
}

export function Submit({ from, onClose }: { from: WorkloadRequest | null; onClose: () => void }) {
  const may = useMay();
  const projects = useKnown(known => known.projects).filter(project =>
    may.do('submit', `project/${project.name}`),
  );
  const nodes = useKnown(known => known.nodes);
  const [draft, setDraft] = useState(() => begin(from, projects[0]?.name ?? ''));
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [preview, setPreview] = useState<{ of: WorkloadRequest; is: Preview } | null>(null);
  const { request, problems } = useMemo(() => lower(draft), [draft]);
  const line = submitCommand(request);
  const told = problem?.field ? (FIELDS[problem.field] ?? (problem.field as keyof Draft)) : null;
  const wrong = (field: keyof Draft) =>
    (tried || draft[field] !== '' ? problems[field] : undefined) ??
    (told === field && problem ? sentence(problem.detail) : null);
  const set =
    <K extends keyof Draft>(field: K) =>
    (value: Draft[K]) => {
      setDraft({ ...draft, [field]: value });
      setPreview(null);
      if (told === field) setProblem(null);
    };
  const send = async (dryRun: boolean) => {
    setTried(true);
    setProblem(null);
    setPreview(null);
    if (Object.keys(problems).length > 0) return;
    setBusy(true);
    try {
      if (dryRun) {
        const { body } = await call<Preview>('POST', '/workloads?dry_run=true', request);
        setPreview({ of: request, is: body });
      } else {
        const { body } = await call<Submitted>('POST', '/workloads', { ...request, command_line: line });
        submitted(body.workload);
        say([`${body.workload.name} is submitted`, ...(body.warnings ?? [])].join('; '));
        onClose();
        go(`/workloads/${body.workload.id}`);
        return;
      }
    } catch (error) {
      setProblem(trouble(error));
    }
    setBusy(false);
  };
  const pools = [...new Set(nodes.map(node => node.pool))].sort();
  const isKnown = told !== null && told in draft;
  return (
    <Dialog title={from ? 'Submit again' : 'Submit a workload'} wide onClose={onClose}>
      <form
        noValidate
        onSubmit={event => {
          event.preventDefault();
          void send(false);
        }}
      >
        <div className="dialog-body">
          <div className="form">
            <TextField
              label="Name"
              value={draft.name}
              onChange={set('name')}
              problem={wrong('name')}
              placeholder="made up when empty"
              autoFocus
            />
            <SelectField
              label="Project"
              value={draft.project}
              onChange={set('project')}
              problem={wrong('project')}
              options={projects.map(project => ({ value: project.name, text: project.name }))}
            />
            <SelectField
              label="Type"
              value={draft.kind}
              onChange={value => set('kind')(value as Kind)}
              options={KINDS}
            />
            <TextField
              label="GPUs of each worker"
              value={draft.gpus}
              onChange={set('gpus')}
              problem={wrong('gpus')}
              mode="decimal"
              hint="A whole number, or a fraction of one such as 0.5"
            />
            <TextField
              label="Image"
              value={draft.image}
              onChange={set('image')}
              problem={wrong('image')}
              list={IMAGES}
              mono
            />
            {draft.kind === 'distributed' ? (
              <TextField
                label="Workers"
                value={draft.workers}
                onChange={set('workers')}
                problem={wrong('workers')}
                mode="numeric"
              />
            ) : (
              <TextField
                label="Ends after"
                value={draft.maxRun}
                onChange={set('maxRun')}
                problem={wrong('maxRun')}
                placeholder="12h"
              />
            )}
            <TextField
              label="Command"
              value={draft.command}
              onChange={set('command')}
              problem={wrong('command')}
              mono
              wide
              placeholder="what the image runs, when empty"
            />
            <details open={from !== null}>
              <summary>More</summary>
              <div>
                <TextField
                  label="GPU memory, instead of GPUs"
                  value={draft.gpuMemory}
                  onChange={set('gpuMemory')}
                  problem={wrong('gpuMemory')}
                  placeholder="8Gi"
                />
                <TextField
                  label="Workers that must start together"
                  value={draft.minWorkers}
                  onChange={set('minWorkers')}
                  problem={wrong('minWorkers')}
                  mode="numeric"
                  placeholder="all"
                />
                <TextField
                  label="CPU cores"
                  value={draft.cpu}
                  onChange={set('cpu')}
                  problem={wrong('cpu')}
                  mode="decimal"
                />
                <TextField
                  label="Memory"
                  value={draft.memory}
                  onChange={set('memory')}
                  problem={wrong('memory')}
                  placeholder="16Gi"
                />
                <TextField
                  label="Priority"
                  value={draft.priority}
                  onChange={set('priority')}
                  problem={wrong('priority')}
                  list={['very-low', 'low', 'medium', 'medium-high', 'high', 'very-high', 'critical']}
                  placeholder="by its type"
                />
                <TextField
                  label="Ports"
                  value={draft.ports}
                  onChange={set('ports')}
                  problem={wrong('ports')}
                  placeholder="8888"
                />
                <TextField
                  label="Environment"
                  value={draft.environment}
                  onChange={set('environment')}
                  problem={wrong('environment')}
                  rows={2}
                  mono
                  placeholder="NAME=VALUE"
                />
                <TextField
                  label="Folders of the host"
                  value={draft.mounts}
                  onChange={set('mounts')}
                  problem={wrong('mounts')}
                  rows={2}
                  mono
                  placeholder="/data:/data:ro"
                />
                <TextField
                  label="Volumes"
                  value={draft.volumes}
                  onChange={set('volumes')}
                  problem={wrong('volumes')}
                  rows={2}
                  mono
                  placeholder="NAME:/path"
                />
                <TextField
                  label="Labels of nodes"
                  value={draft.nodeSelector}
                  onChange={set('nodeSelector')}
                  problem={wrong('nodeSelector')}
                  rows={2}
                  mono
                  placeholder="rack=r1"
                />
                <TextField
                  label="Node pool"
                  value={draft.nodePool}
                  onChange={set('nodePool')}
                  problem={wrong('nodePool')}
                  list={pools}
                  placeholder="default"
                />
                <TextField
                  label="Working folder"
                  value={draft.workingDir}
                  onChange={set('workingDir')}
                  problem={wrong('workingDir')}
                  mono
                />
                {(draft.kind === 'interactive' || draft.kind === 'inference') && (
                  <CheckField
                    label="May borrow, and may be preempted"
                    checked={draft.preemptible}
                    onChange={set('preemptible')}
                  />
                )}
              </div>
            </details>
          </div>
        </div>
        <div className="dialog-tail">
          {problem && !isKnown && <TroubleNote of={problem} />}
          {problem?.hint && isKnown && <p className="note">{sentence(problem.hint)}</p>}
          {/* What was asked about may have been changed before the answer came. */}
          {preview?.of === request && <WhatWouldHappen preview={preview.is} />}
          <Copyable text={line} label="Copy the command" />
        </div>
        <footer>
          <Button onClick={() => void send(true)} disabled={busy}>
            What would happen?
          </Button>
          <span className="room" />
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="primary" disabled={busy}>
            Submit
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

function WhatWouldHappen({ preview }: { preview: Preview }) {
  const where = preview.nodes.join(', ');
  const text = preview.starts
    ? preview.evicts.length === 0
      ? `It would start at once on ${where}.`
      : `It would start on ${where} once these have left: ${preview.evicts.join(', ')}.`
    : `It would wait: ${sentence(preview.waits ?? 'nobody knows why')}`;
  return (
    <div className={`note ${preview.starts ? '' : 'warn'}`} role="status">
      <p>{text}</p>
      {preview.warnings?.map(warning => (
        <p key={warning}>{sentence(warning)}</p>
      ))}
    </div>
  );
}
