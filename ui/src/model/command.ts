// The command that does what a form does.
import type { WorkloadRequest } from '../api/types.ts';

/** A word as a shell reads it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_=+:,./@%-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The words somebody typed, as a shell would split them. */
export function split(line: string): string[] {
  const words: string[] = [];
  let word = '';
  let open: string | null = null;
  let begun = false;
  for (let index = 0; index < line.length; index += 1) {
    const letter = line[index]!;
    if (letter === '\\' && open !== "'" && index + 1 < line.length) {
      index += 1;
      word += line[index];
      begun = true;
    } else if (open !== null) {
      if (letter === open) open = null;
      else word += letter;
    } else if (letter === '"' || letter === "'") {
      open = letter;
      begun = true;
    } else if (/\s/.test(letter)) {
      if (begun) words.push(word);
      word = '';
      begun = false;
    } else {
      word += letter;
      begun = true;
    }
  }
  if (begun) words.push(word);
  return words;
}

/** `90` as `90s`, `5400` as `90m`. */
export function time(secs: number): string {
  for (const [unit, size] of [
    ['d', 86_400],
    ['h', 3600],
    ['m', 60],
  ] as const) {
    if (secs >= size && secs % size === 0) return `${secs / size}${unit}`;
  }
  return `${secs}s`;
}

/** `90m` as seconds; null when it is no time. */
export function seconds(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*$/.exec(text);
  if (!found) return null;
  const size = { '': 1, s: 1, m: 60, h: 3600, d: 86_400 }[found[2] as '' | 's' | 'm' | 'h' | 'd'];
  return Math.round(Number(found[1]) * size);
}

export function submitCommand(request: WorkloadRequest): string {
  const words = ['berth', 'submit'];
  const flag = (name: string, value: unknown) => {
    if (value === undefined || value === null || value === '') return;
    words.push(name, quoted(String(value)));
  };
  if (request.name) words.push(quoted(request.name));
  flag('-p', request.project);
  flag('-i', request.image);
  flag('-g', request.gpus);
  flag('--gpu-memory', request.gpu_memory);
  flag('--gpu-devices', request.gpu_devices);
  if (request.kind === 'interactive') words.push('--interactive');
  if (request.kind === 'inference') words.push('--inference');
  if (request.preemptible === true && request.kind !== 'train' && request.kind !== 'distributed') {
    words.push('--preemptible');
  }
  flag('--workers', request.workers);
  flag('--min-workers', request.min_workers);
  flag('--cpu', request.cpu);
  flag('--memory', request.memory);
  flag('--priority', request.priority);
  if (request.max_run_secs) flag('--max-run-time', time(request.max_run_secs));
  flag('--node-pool', request.node_pool);
  for (const [label, value] of Object.entries(request.node_selector ?? {}))
    flag('--node-selector', `${label}=${value}`);
  for (const [name, value] of Object.entries(request.environment ?? {})) flag('-e', `${name}=${value}`);
  for (const port of request.ports ?? []) flag('--port', port);
  for (const mount of request.mounts ?? []) {
    flag('-v', `${mount.source}:${mount.target}${mount.read_only ? ':ro' : ''}`);
  }
  for (const volume of request.volumes ?? []) {
    flag('--pvc', `${volume.name}:${volume.target}${volume.read_only ? ':ro' : ''}`);
  }
  flag('--working-dir', request.working_dir);
  if (request.large_shm) words.push('--large-shm');
  const command = [...(request.command ?? []), ...(request.args ?? [])];
  if (command.length > 0) words.push('--', ...command.map(quoted));
  return words.join(' ');
}
