// A real server for each test, with a folder of its own, on a free port; and a page that may talk to it only.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { type BrowserContext, test as base, expect, type Page } from '@playwright/test';

export const cache = process.env.BERTH_CACHE ?? join(homedir(), '.cache/berth');
export const BERTH =
  process.env.BERTH_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(cache, 'target'), 'debug/berth');

/** Where commands are typed: work runs under an account of its user, which may enter it wherever the clone is. */
export const HERE = '/';

export class Berth {
  readonly folder = mkdtempSync(join(tmpdir(), 'berth-ui-'));
  /** The nodes that are declared. */
  readonly nodes: string = '2xdgx1';
  private process: ChildProcess | null = null;
  address = '';
  link = '';

  async up(...words: string[]) {
    const listen = this.address === '' ? '127.0.0.1:0' : new URL(this.address).host;
    const started = spawn(BERTH, [
      'up',
      '--folder',
      this.folder,
      '--listen',
      listen,
      '--nodes',
      this.nodes,
      // A start at the same port again changes the setting "any free port".
      '--change',
      ...words,
    ]);
    this.process = started;
    let said = '';
    await new Promise<void>((resolve, reject) => {
      started.stderr.on('data', data => {
        said += data;
        if (said.includes('Ctrl-C stops it')) resolve();
      });
      started.on('exit', code => reject(new Error(`berth up ended with ${code}: ${said}`)));
    });
    this.link = /http:\S+#code=\w+/.exec(said)?.[0] ?? '';
    this.address = new URL(this.link).origin;
  }

  get token() {
    return readFileSync(join(this.folder, 'token'), 'utf8').trim();
  }

  /** Makes a user with a role, and a token of theirs. */
  async join(user: string, role: string, scope: string): Promise<string> {
    await this.run('user', 'create', user);
    await this.run('role', 'grant', user, role, scope);
    return (await this.run('token', 'create', 'test', '--user', user)).trim();
  }

  async run(...words: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(BERTH, words, {
      cwd: HERE,
      env: { ...process.env, BERTH_HOME: this.folder },
    });
    return stdout;
  }

  /** Asks the API. */
  async call<T>(method: string, path: string, body?: object, token = this.token): Promise<T> {
    const answer = await fetch(`${this.address}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: body && JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  async down(...words: string[]) {
    const ended = this.process;
    if (!ended || ended.exitCode !== null) return;
    const exit = once(ended, 'exit');
    await this.run('down', ...words);
    await exit;
  }

  async remove() {
    await this.down().catch(() => this.process?.kill('SIGKILL'));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The four teams of the report. */
export const TEAMS = ['team-a=4', 'team-b=2', 'team-c=2', 'team-d=8'].flatMap(team => ['--project', team]);

const TYPES: Record<string, string> = {
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.html': 'text/html',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

/** With BERTH_UI_DIST=dist, pages come from that folder instead of the binary, so that a change of them needs no build of the server. */
export async function fromFolder(context: BrowserContext) {
  const folder = process.env.BERTH_UI_DIST;
  if (!folder) return;
  await context.route(
    url => !url.pathname.startsWith('/api/') && url.hostname === '127.0.0.1',
    async (route, request) => {
      const { pathname, search } = new URL(request.url());
      // A link into a workload redirects, which only the browser can follow.
      if (search.includes('berth-ticket')) return route.continue();
      const path = join(folder, extname(pathname) === '' ? 'index.html' : pathname);
      if (!existsSync(path)) return route.continue();
      const real = extname(pathname) === '' ? await route.fetch() : null;
      // A workload's port has pages of its own.
      if (real && !real.headers()['berth-dashboard']) return route.fulfill({ response: real });
      await route.fulfill({ path, status: real?.status() ?? 200, contentType: TYPES[extname(path)] });
    },
  );
}

export const test = base.extend<{ berth: Berth; signedIn: Page }>({
  // biome-ignore lint/correctness/noEmptyPattern: the form that the library asks for.
  berth: async ({}, use) => {
    const berth = new Berth();
    await use(berth);
    await berth.remove();
  },
  page: async ({ page, context }, use) => {
    await fromFolder(context);
    const strangers: string[] = [];
    const troubles: string[] = [];
    page.on('request', request => {
      const url = new URL(request.url());
      if (url.hostname !== '127.0.0.1' && url.protocol !== 'data:' && url.protocol !== 'blob:')
        strangers.push(request.url());
    });
    page.on('pageerror', error => troubles.push(String(error)));
    page.on('console', message => {
      // A server that is away, and a refusal, are noted by the browser itself.
      if (message.type() === 'error' && !message.text().includes('Failed to load resource'))
        troubles.push(message.text());
    });
    await use(page);
    expect(strangers, 'everything comes from the server itself').toEqual([]);
    expect(troubles, 'nothing goes wrong unseen').toEqual([]);
  },
  signedIn: async ({ berth, page }, use) => {
    await berth.up(...TEAMS);
    await page.goto(berth.link);
    await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
    await use(page);
  },
});

/** Signs in as whoever has a token. */
export async function signIn(page: Page, address: string, token: string) {
  await page.goto(address);
  await page.getByLabel('Or sign in with a token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
}

export { expect };
