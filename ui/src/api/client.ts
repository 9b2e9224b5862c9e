// Calls the API of the server that this page came from.
import type { Problem } from './types.ts';

const KEY = 'berth.page';

/** What went wrong, in the API's own words; or that nobody answered. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly problem: Pick<Problem, 'detail'> & Partial<Problem>,
  ) {
    super(problem.detail);
  }

  get isUnreachable() {
    return this.status === 0;
  }
}

export interface Answer<T> {
  body: T;
  headers: Headers;
}

/** How far the server's clock is ahead of this one, in milliseconds. */
let ahead = 0;
/** The first build of the dashboard that the server told of: the one this page is of. */
let build: string | undefined;
let onStale = () => {};
let onSignedOut = () => {};
let onRefused = () => {};

export function listen(handlers: { stale: () => void; signedOut: () => void; refused: () => void }) {
  onStale = handlers.stale;
  onSignedOut = handlers.signedOut;
  onRefused = handlers.refused;
}

/** The time as the server sees it, so that "3 s ago" holds on a laptop whose clock is wrong. */
export function serverNow() {
  return Date.now() + ahead;
}

export function keepKey(key: string | null) {
  if (key === null) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, key);
}

export function hasKey() {
  return localStorage.getItem(KEY) !== null;
}

/** Opens a socket of the API. It takes no headers, so the key goes as the name of a way of speaking. */
export function openSocket(path: string, protocol: string): WebSocket {
  const url = new URL(`/api/v1${path}`, window.location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const socket = new WebSocket(url, [protocol, `berth.page.${localStorage.getItem(KEY) ?? ''}`]);
  socket.binaryType = 'arraybuffer';
  return socket;
}

/** Asks, and gives the answer as it comes: a stream is read by whoever asked. */
export async function ask(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<Response> {
  const headers: Record<string, string> = {};
  const key = localStorage.getItem(KEY);
  if (key !== null) headers['berth-page'] = key;
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (method === 'POST' && body !== undefined) headers['idempotency-key'] = randomKey();
  let response: Response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: 'same-origin',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, { detail: 'the server does not answer' });
  }
  notice(response.headers);
  if (!response.ok) {
    const failure = await read(response);
    if (response.status === 401 && path !== '/session') onSignedOut();
    if (response.status === 403) onRefused();
    throw failure;
  }
  return response;
}

export async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<Answer<T>> {
  const response = await ask(method, path, body, signal);
  const text = await response.text();
  return { body: (text === '' ? undefined : JSON.parse(text)) as T, headers: response.headers };
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await call<T>('GET', path, undefined, signal)).body;
}

/** A path with parameters; what is undefined is left out. */
export function withQuery(path: string, query: Record<string, string | number | boolean | undefined | null>) {
  const words = Object.entries(query)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return words.length === 0 ? path : `${path}?${words.join('&')}`;
}

/** The path of a workload. */
export function workloadPath(workload: { project: string; name: string }, rest = '') {
  return `/workloads/${encodeURIComponent(workload.project)}/${encodeURIComponent(workload.name)}${rest}`;
}

async function read(response: Response): Promise<Failure> {
  try {
    return new Failure(response.status, (await response.json()) as Problem);
  } catch {
    return new Failure(response.status, { detail: `the server answered ${response.status}` });
  }
}

function notice(headers: Headers) {
  const date = Date.parse(headers.get('date') ?? '');
  // The header has whole seconds, so a small difference is none.
  if (!Number.isNaN(date)) ahead = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  const told = headers.get('berth-dashboard');
  if (told === null) return;
  build ??= told;
  if (told !== build) onStale();
}

function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
}
