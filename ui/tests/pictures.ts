// Not a test: every page, both themes, wide and on a phone, as pictures to look at. `npm run pictures` puts them into
// target/pictures; with BERTH_UPDATE=1 the two that the documentation shows are taken from there.
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from '@playwright/test';
import { type Berth, expect, fromFolder, test } from './berth.ts';

const FOLDER = join(import.meta.dirname, '../../target/pictures');
const IMAGES = join(import.meta.dirname, '../../docs/images');
const SIZES = { wide: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };
const THEMES = ['light', 'dark'] as const;
/** How long each phase of the report lasts, so that Analytics has something to show. */
const PHASE_MS = Number(process.env.BERTH_PHASE_MS ?? 15_000);

interface View {
  name: string;
  path: string;
  /** What is done once the page is there. */
  act?: (page: Page) => Promise<unknown>;
}

async function submit(berth: Berth, team: string, name: string, gpus: string, ...words: string[]) {
  await berth.run('submit', name, '-p', team, '-g', gpus, '-i', 'berth/quickstart', ...words);
}

/** The report's scenario as far as the preemption, and back. */
async function play(berth: Berth, after: (phase: number) => Promise<void>) {
  await berth.run('department', 'create', 'research', '--quota', '4');
  await berth.run('project', 'update', 'team-b', '--department', 'research');
  await berth.run('project', 'update', 'team-c', '--department', 'research');
  await berth.join('grace', 'researcher', 'project/team-a');
  await berth.join('linus', 'project-lead', 'project/team-b');
  const script = 'echo "the notebook listens"; python3 -m http.server -d . "$BERTH_PORT_8888"';
  const words = ['--interactive', '--port', '8888', '--', 'bash', '-c', script];
  await berth.run('submit', 'a-1-1-jupyter', '-p', 'team-a', '-g', '1', '-i', 'bash', ...words);
  for (const [team, name, gpus, ...words] of [
    ['team-a', 'a-1-g', '1'],
    ['team-a', 'a-2-gg', '2'],
    ['team-b', 'b-1-g06', '0.6', '--interactive'],
    ['team-b', 'b-2-g04', '0.4', '--interactive'],
    ['team-b', 'b-3-g', '1'],
    ['team-b', 'b-4-gg', '2'],
    ['team-c', 'c-1-g05', '0.5', '--interactive'],
    ['team-c', 'c-2-g03', '0.3', '--interactive'],
    ['team-c', 'c-3-g02', '0.2', '--interactive'],
    ['team-c', 'c-4-gg', '2'],
    ['team-c', 'c-5-g', '1'],
    ['team-d', 'd-1-gggg', '4'],
  ] as const)
    await submit(berth, team, name, gpus, ...words);
  await berth.run('wait', 'd-1-gggg', '-p', 'team-d', '--for', 'running', '--timeout', '60s');
  await after(1);
  await submit(berth, 'team-d', 'd-2-gg', '2');
  await submit(berth, 'team-d', 'd-3-gg', '2');
  await berth.run('wait', 'd-2-gg', 'd-3-gg', '-p', 'team-d', '--for', 'running', '--timeout', '60s');
  await after(2);
  await berth.run('delete', 'd-1-gggg', 'd-2-gg', 'd-3-gg', '-p', 'team-d');
  await berth.run('wait', 'b-4-gg', '-p', 'team-b', '--for', 'running', '--timeout', '60s');
  await after(3);
}

const tab = (name: string) => (page: Page) => page.getByRole('tab', { name }).click();
const press = (name: string) => (page: Page) =>
  page.getByRole('button', { name, exact: true }).last().click();
const opened = (name: string) => (page: Page) =>
  page.getByRole('link', { name, exact: true }).first().click();
const both =
  (...acts: ((page: Page) => Promise<unknown>)[]) =>
  async (page: Page) => {
    for (const act of acts) await act(page);
  };

/** What is there while the owner has its GPUs back and two jobs are paused. */
const FULL: View[] = [
  { name: 'overview', path: '/' },
  { name: 'workloads', path: '/workloads' },
  { name: 'workloads-nothing-fits', path: '/workloads?q=nobody' },
  { name: 'workload-running', path: '/workloads', act: opened('a-2-gg') },
  { name: 'workload-paused', path: '/workloads', act: opened('b-4-gg') },
  { name: 'workload-logs', path: '/workloads', act: both(opened('a-2-gg'), tab('Logs')) },
  { name: 'workload-events', path: '/workloads', act: both(opened('b-4-gg'), tab('Events')) },
  { name: 'workload-metrics', path: '/workloads', act: both(opened('a-2-gg'), tab('Metrics')) },
  { name: 'workload-connect', path: '/workloads', act: both(opened('a-1-1-jupyter'), tab('Connect')) },
  {
    name: 'workload-terminal',
    path: '/workloads',
    act: both(opened('a-1-1-jupyter'), tab('Terminal'), async page => {
      await expect(page.getByText(/^Connected to/)).toBeVisible();
      await page.keyboard.type('ls --color=always /; echo $((6 * 7))\n');
      await expect(page.locator('.xterm-rows')).toContainText('42');
    }),
  },
  {
    name: 'workload-page',
    path: '/workloads',
    act: both(opened('b-4-gg'), async page => {
      await page.getByRole('link', { name: 'Open as a page' }).click();
      await expect(page.getByRole('img', { name: /^Timeline/ })).toBeVisible();
    }),
  },
  {
    name: 'workloads-selected',
    path: '/workloads',
    act: async page => {
      if ((page.viewportSize()?.width ?? 0) > 760) await page.getByLabel('Select a-2-gg').check();
    },
  },
  { name: 'workload-delete', path: '/workloads', act: both(opened('a-2-gg'), press('Delete')) },
  {
    name: 'columns',
    path: '/workloads',
    act: async page => {
      // A phone has room for those that matter most, and no choice.
      if ((page.viewportSize()?.width ?? 0) > 760) await press('Columns')(page);
    },
  },
  { name: 'submit', path: '/workloads', act: press('Submit') },
  {
    name: 'submit-wrong',
    path: '/workloads',
    act: both(press('Submit'), async page => {
      const form = page.getByRole('dialog');
      await form.getByLabel('Name', { exact: true }).fill('Not a name');
      await form.getByLabel('GPUs per worker').fill('many');
      await form.getByText('Workers and runs', { exact: true }).click();
      await form.getByRole('button', { name: 'Submit', exact: true }).click();
    }),
  },
  { name: 'projects', path: '/projects' },
  { name: 'project', path: '/projects', act: opened('team-b') },
  { name: 'project-new', path: '/projects', act: press('New project') },
  { name: 'project-change', path: '/projects', act: both(opened('team-a'), press('Change team-a')) },
  { name: 'department-new', path: '/projects', act: press('New department') },
  { name: 'nodes', path: '/nodes' },
  { name: 'nodes-list', path: '/nodes?view=list' },
  { name: 'node', path: '/nodes', act: opened('node1') },
  { name: 'activity', path: '/activity' },
  { name: 'node-drain', path: '/nodes', act: press('Drain node1') },
  { name: 'users', path: '/people' },
  { name: 'user-new', path: '/people', act: press('New user') },
  { name: 'tokens', path: '/people?tab=tokens' },
  { name: 'token-new', path: '/people?tab=tokens', act: press('New token') },
  { name: 'audit', path: '/people?tab=audit' },
  { name: 'settings', path: '/settings' },
];

const EMPTY: View[] = [
  '',
  'workloads',
  'projects',
  'nodes',
  'analytics',
  'activity',
  'people?tab=tokens',
].map(page => ({
  name: `empty-${page.replace(/\?.*/, '') || 'overview'}`,
  path: `/${page}`,
}));

/** Looks at each view in both themes and sizes. */
async function look(browser: Browser, berth: Berth, views: View[], signedIn = true) {
  for (const theme of THEMES)
    for (const [size, viewport] of Object.entries(SIZES)) {
      const context = await browser.newContext({ viewport, colorScheme: theme });
      await fromFolder(context);
      const page = await context.newPage();
      if (signedIn) {
        await page.goto((await berth.run('dashboard')).trim());
        await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
      }
      for (const view of views) {
        await page.goto(berth.address + view.path);
        if (signedIn) await expect(page.getByText('Live', { exact: true })).toBeAttached();
        await expect(page.getByText('Loading…')).toHaveCount(0);
        await view.act?.(page);
        await page.evaluate(() => document.fonts.ready);
        // What comes in is drawn in, and what was asked for is answered.
        await page.waitForLoadState('networkidle', { timeout: 700 }).catch(() => {});
        await page.screenshot({
          path: join(FOLDER, `${view.name}-${theme}-${size}.png`),
          animations: 'disabled',
        });
      }
      await context.close();
    }
}

test('pictures of every page', async ({ berth, browser }) => {
  await berth.up();
  await look(
    browser,
    berth,
    [
      { name: 'sign-in', path: '/' },
      { name: 'nowhere', path: '/nowhere' },
    ],
    false,
  );
  await look(browser, berth, EMPTY);
  for (const [team, quota] of Object.entries({ 'team-a': '4', 'team-b': '2', 'team-c': '2', 'team-d': '8' }))
    await berth.run('project', 'create', team, '--quota', quota);
  const from = Date.now();
  await play(berth, async phase => {
    await new Promise(resolve => setTimeout(resolve, PHASE_MS));
    if (phase === 2) await look(browser, berth, FULL);
    if (phase === 3) {
      const range = `from=${from - 10_000}&to=${Date.now()}`;
      await look(browser, berth, [
        { name: 'analytics', path: `/analytics?${range}` },
        { name: 'analytics-lines', path: `/analytics?view=lines&${range}` },
      ]);
    }
  });
  if (process.env.BERTH_UPDATE === '1')
    for (const name of ['overview', 'analytics'])
      copyFileSync(join(FOLDER, `${name}-light-wide.png`), join(IMAGES, `${name}.png`));
});
