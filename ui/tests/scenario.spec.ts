// The report's own scenario, from the page: idle GPUs are lent, their owner comes back, and leaves again.
import type { Page } from '@playwright/test';
import { expect, test } from './berth.ts';

async function createTeam(page: Page, name: string, quota: number) {
  await page.getByRole('button', { name: 'New project' }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('Name', { exact: true }).fill(name);
  await form.getByLabel('Quota', { exact: true }).fill(String(quota));
  await form.getByRole('button', { name: 'Create' }).click();
  await expect(form).toBeHidden();
}

async function submit(
  page: Page,
  team: string,
  name: string,
  gpus: number,
  more: { kind?: string; command?: string } = {},
) {
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('Name', { exact: true }).fill(name);
  await form.getByLabel('Project', { exact: true }).selectOption(team);
  await form.getByLabel('GPUs per worker').fill(String(gpus));
  if (more.kind) await form.getByLabel('Type', { exact: true }).selectOption(more.kind);
  if (more.command) {
    await form.getByLabel('Image', { exact: true }).fill('bash');
    await form.getByLabel('Command', { exact: true }).fill(more.command);
  }
  await expect(form.locator('code')).toContainText(`berth submit ${name} -p ${team}`);
  await form.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(form).toBeHidden();
  await page
    .getByRole('complementary', { name: `Workload ${name}` })
    .getByRole('button', { name: 'Close' })
    .click();
}

function tile(page: Page, name: string) {
  return page.getByRole('link', { name: new RegExp(`^${name} \\d`) }).locator('.tile-number');
}

async function expectShares(page: Page, shares: string[]) {
  const section = page.locator('section', { has: page.getByRole('heading', { name: 'GPUs by project' }) });
  for (const share of shares) await expect(section.getByRole('img', { name: share })).toBeVisible();
}

test('the scenario of the report, from the page', async ({ berth, page }) => {
  test.setTimeout(180_000);
  await berth.up();
  await page.goto(berth.link);
  await expect(page.getByText('berth project create vision --quota 2')).toBeVisible();

  await page.getByRole('link', { name: 'Projects', exact: true }).click();
  for (const [team, quota] of [
    ['team-a', 4],
    ['team-b', 2],
    ['team-c', 2],
    ['team-d', 8],
  ] as const)
    await createTeam(page, team, quota);
  await expect(page.getByText('16 of 16 GPUs promised')).toBeVisible();

  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  await expect(page.getByText('No active workloads')).toBeVisible();
  await submit(page, 'team-a', 'a-1-1-jupyter', 1, { kind: 'interactive', command: 'sleep infinity' });
  const section48: [string, string, number][] = [
    ['team-a', 'a-1-g', 1],
    ['team-a', 'a-2-gg', 2],
    ['team-b', 'b-1-g06', 0.6],
    ['team-b', 'b-2-g04', 0.4],
    ['team-b', 'b-3-g', 1],
    ['team-b', 'b-4-gg', 2],
    ['team-c', 'c-1-g05', 0.5],
    ['team-c', 'c-2-g03', 0.3],
    ['team-c', 'c-3-g02', 0.2],
    ['team-c', 'c-4-gg', 2],
    ['team-c', 'c-5-g', 1],
    ['team-d', 'd-1-gggg', 4],
  ];
  // The fractions are of people at work, as in the report.
  for (const [team, name, gpus] of section48)
    await submit(page, team, name, gpus, gpus < 1 ? { kind: 'interactive' } : {});

  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await expect(tile(page, 'Allocated')).toHaveText('16 / 16');
  await expect(tile(page, 'Running')).toHaveText('13');
  await expect(tile(page, 'Pending')).toHaveText('0');
  await expectShares(page, [
    'team-a: 4 of 4 GPUs',
    'team-b: 4 of 2 GPUs, 2 borrowed',
    'team-c: 4 of 2 GPUs, 2 borrowed',
    'team-d: 4 of 8 GPUs',
  ]);

  await page
    .getByRole('navigation')
    .getByRole('link', { name: /^Workloads/ })
    .click();
  await page.getByRole('link', { name: 'a-1-1-jupyter', exact: true }).click();
  const notebook = page.getByRole('complementary', { name: 'Workload a-1-1-jupyter' });
  await notebook.getByRole('tab', { name: 'Terminal' }).click();
  await expect(notebook.getByRole('status')).toContainText('Connected to node');
  await page.keyboard.type('echo seven times six is $((7 * 6))\n');
  await expect(notebook.locator('.xterm-rows')).toContainText('seven times six is 42');
  await notebook.getByRole('button', { name: 'Close', exact: true }).click();
  await page.getByRole('link', { name: 'Overview', exact: true }).click();

  // The owner comes back, typed elsewhere; the page sees the preemption happen without being asked.
  for (const name of ['d-2-gg', 'd-3-gg'])
    await berth.run('submit', name, '-p', 'team-d', '-g', '2', '-i', 'berth/quickstart');
  await expectShares(page, [
    'team-a: 4 of 4 GPUs',
    'team-b: 2 of 2 GPUs',
    'team-c: 2 of 2 GPUs',
    'team-d: 8 of 8 GPUs',
  ]);
  await expect(tile(page, 'Allocated')).toHaveText('16 / 16');
  await expect(tile(page, 'Pending')).toHaveText('2');
  const pending = page.getByRole('region', { name: 'Pending workloads' });
  for (const name of ['b-4-gg', 'c-4-gg'])
    await expect(pending.getByRole('row').filter({ hasText: name })).toContainText('so it cannot reclaim');
  const name = 'b-4-gg';
  await pending.getByRole('link', { name, exact: true }).click();
  const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
  await expect(drawer.getByRole('region', { name: 'Why it waits' })).toContainText('no-capacity');
  await expect(drawer).toContainText('quota-reclaim');
  await drawer.getByRole('tab', { name: 'Logs' }).click();
  await drawer.getByLabel('Find in the log').fill('checkpoint');
  await expect(drawer.getByRole('log')).toContainText('checkpoint');
  await expect(drawer.locator('mark').first()).toHaveText('checkpoint');
  await drawer.getByRole('tab', { name: 'Events' }).click();
  await expect(drawer).toContainText('preempted by team-d/d-');
  await page.keyboard.press('Escape');
  await expect(drawer).toBeHidden();

  for (const name of ['d-1-gggg', 'd-2-gg', 'd-3-gg']) {
    await page.getByRole('link', { name, exact: true }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await expect(page.getByRole('complementary', { name: `Workload ${name}` })).toContainText(
      /Terminating|Deleted/,
    );
    // The page may hear of it before the answer closes the question.
    await expect(page.getByRole('dialog')).toBeHidden();
    await page.keyboard.press('Escape');
    await expect(page.getByRole('complementary', { name: `Workload ${name}` })).toBeHidden();
  }
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await expectShares(page, [
    'team-b: 4 of 2 GPUs, 2 borrowed',
    'team-c: 4 of 2 GPUs, 2 borrowed',
    'team-d: 0 of 8 GPUs',
  ]);
  await expect(tile(page, 'Pending')).toHaveText('0');

  await page.getByRole('link', { name: 'Nodes', exact: true }).click();
  await expect(page.getByRole('article')).toHaveCount(2);
  await page.getByRole('link', { name: 'Analytics', exact: true }).click();
  await expect(page.getByRole('img', { name: /GPUs by project, last: team-a/ })).toBeVisible();
  await expect(page.getByRole('region', { name: 'Preemptions and work lost' })).toContainText(
    /\d preemptions/,
  );
});
