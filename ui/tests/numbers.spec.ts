// The numbers of the pages: the same for every role, never older than what they stand for.
import type { Page } from '@playwright/test';
import { type Berth, expect, signIn, TEAMS, test } from './berth.ts';

const SLEEP = ['-i', 'bash', '--', 'sleep', 'infinity'];

function tile(page: Page, name: string) {
  return page.getByRole('link', { name: new RegExp(`^${name} [\\d–]`) }).locator('.tile-number');
}

async function wait(berth: Berth, name: string, team: string, what = 'running') {
  await berth.run('wait', name, '-p', team, '--for', what, '--timeout', '60s');
}

test('every role sees the same totals, and the GPUs of others in use without a name', async ({
  berth,
  page,
  browser,
}) => {
  await berth.up(...TEAMS);
  for (const [name, team, gpus] of [
    ['eight', 'team-d', '8'],
    ['four', 'team-a', '4'],
    ['three', 'team-b', '3'],
    ['half', 'team-c', '0.5'],
  ] as const) {
    await berth.run('submit', name, '-p', team, '-g', gpus, ...SLEEP);
    await wait(berth, name, team);
  }
  await berth.run('submit', 'late', '-p', 'team-b', '-g', '4', ...SLEEP);
  const bob = await berth.join('bob', 'researcher', 'project/team-c');
  await page.goto(berth.link);
  await expect(tile(page, 'Allocated')).toHaveText('15.5 / 16');

  const other = await browser.newPage();
  await signIn(other, berth.address, bob);
  for (const name of ['Nodes', 'GPUs', 'Allocated', 'Running', 'Pending']) {
    const text = await tile(page, name).textContent();
    await expect(tile(other, name), name).toHaveText(text ?? '');
  }
  await expect(tile(other, 'Running')).toHaveText('4');
  await expect(tile(other, 'Pending')).toHaveText('1');
  const nodes = other.locator('section', { has: other.getByRole('heading', { name: 'Nodes' }) });
  for (const strip of await nodes.getByRole('img', { name: /GPUs in use/ }).all())
    await expect(strip).toHaveAttribute('aria-label', '8 of 8 GPUs in use');
  await other.goto(`${berth.address}/nodes`);
  await expect(other.getByRole('article')).toHaveCount(2);
  await expect(other.getByText('free', { exact: true })).toHaveCount(0);
  await expect(other.getByText('in use', { exact: true })).toHaveCount(15);
  await expect(other.getByText('half')).toHaveCount(1);
  for (const hidden of ['eight', 'four', 'three', 'late'])
    await expect(other.getByText(hidden, { exact: true })).toHaveCount(0);

  // What others do is seen without a reload, and without their events.
  await berth.run('delete', 'eight', '-p', 'team-d');
  await expect(other.getByText('free', { exact: true })).not.toHaveCount(0);
  await other.close();
});

test('utilisation is not shown for finished work and freed devices', async ({ berth, signedIn: page }) => {
  const report = `curl -s -X POST -H "authorization: Bearer $BERTH_REPORT_TOKEN" -H 'content-type: application/json' \
    -d '{"utilisation":93}' "$BERTH_REPORT_URL/report"; sleep infinity`;
  await berth.run('submit', 'busy', '-p', 'team-a', '-g', '1', '-i', 'bash', '--', 'bash', '-c', report);
  await page.goto(`${berth.address}/nodes`);
  await expect(page.locator('.device-usage').first()).toHaveText('93 %');
  await berth.run('delete', 'busy', '-p', 'team-a');
  await expect(page.getByText('free', { exact: true })).toHaveCount(16);
  await expect(page.locator('.device-usage')).toHaveCount(0);
  await page.goto(`${berth.address}/workloads?show=finished`);
  const row = page.getByRole('row').filter({ hasText: 'busy' });
  await expect(row).toContainText('Deleted');
  await expect(row.getByRole('img', { name: /Utilisation/ })).toHaveCount(0);
});

/** Answers every question about a series with these points: minutes before now, and a value. */
async function withSeries(page: Page, points: [number, number][]) {
  await page.route('**/api/v1/series/points?*', route => {
    const now = Date.now();
    const items = points.map(([minutes, value]) => {
      const all = value * 1e6;
      return { at: new Date(now - minutes * 60_000).toISOString(), mean: all, min: all, max: all };
    });
    return route.fulfill({ json: { name: 'x', points: items } });
  });
}

const drawn = (page: Page, label: string) =>
  page
    .getByRole('img', { name: new RegExp(`^${label}`) })
    .locator('path:not(.over):not(.mark path)')
    .last();

test('a gap in a chart stays a gap', async ({ berth, signedIn: page }) => {
  // Samples of ten seconds, none for five minutes, and then some again.
  const before = Array.from({ length: 12 }, (_, at): [number, number] => [10 - at / 6, 40]);
  const after = Array.from({ length: 12 }, (_, at): [number, number] => [3 - at / 6, 60]);
  await withSeries(page, [...before, ...after]);
  await page.goto(`${berth.address}/analytics?range=15m`);
  await expect(drawn(page, 'Utilisation of all GPUs')).toHaveAttribute('d', /M[^M]*M/);
});

test('thirty days show the hours that are known', async ({ berth, signedIn: page }) => {
  await withSeries(page, [
    [600, 4],
    [540, 8],
  ]);
  await page.goto(`${berth.address}/analytics?range=30d`);
  const line = drawn(page, 'Utilisation of all GPUs');
  await expect(line).toHaveAttribute('d', /^M[\d.]+,[\d.]+H[\d.]+V[\d.]+H[\d.]+/);
});

test('analytics begin with a range that has data on a new server', async ({ berth, signedIn: page }) => {
  await page.goto(`${berth.address}/analytics`);
  await expect(page.getByRole('button', { name: '15 min' })).toHaveAttribute('aria-pressed', 'true');
  await page.getByLabel('Project', { exact: true }).selectOption('team-a');
  await expect(page).toHaveURL(/project=team-a/);
  await page.getByRole('button', { name: 'Custom range' }).click();
  await page.getByLabel('From').fill('2024-01-01T10:00');
  await page.getByLabel('To').fill('2024-01-01T09:00');
  await expect(page.getByText('The end must be after the beginning')).toBeVisible();
  await page.getByLabel('To').fill('2024-01-02T10:00');
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await expect(page).toHaveURL(/from=\d+&to=\d+/);
});
