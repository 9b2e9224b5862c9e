// What pages have: columns of the report, a page of its own for a workload, what is done to several at once.
import { expect, test } from './berth.ts';

const SLEEP = ['-i', 'bash', '--', 'sleep', 'infinity'];

test('an address that does not exist shows the dashboard and says so', async ({ berth, signedIn: page }) => {
  const answer = await page.goto(`${berth.address}/no/such/page`);
  expect(answer?.status()).toBe(404);
  await expect(page.getByText('Page not found')).toBeVisible();
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await page.getByRole('link', { name: 'Go to the overview' }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
});

test('a project keeps its colour when others come and go', async ({ berth, signedIn: page }) => {
  await page.goto(`${berth.address}/projects`);
  const colours = () =>
    Promise.all(
      ['team-a', 'team-b', 'team-c', 'team-d'].map(name =>
        page
          .getByRole('link', { name })
          .locator('.swatch')
          .evaluate(swatch => getComputedStyle(swatch).backgroundColor),
      ),
    );
  await expect(page.getByRole('link', { name: 'team-d' })).toBeVisible();
  const before = await colours();
  expect(new Set(before).size).toBe(4);
  for (let at = 0; at < 6; at += 1) {
    await berth.run('project', 'create', `a-${at}`, '--quota', '0');
    await expect(page.getByRole('link', { name: `a-${at}` })).toBeVisible();
    expect(await colours(), `after a-${at}`).toEqual(before);
  }
});

test('projects are filtered and searched, and show creation and node affinity', async ({
  berth,
  signedIn: page,
}) => {
  await berth.run('department', 'create', 'research', '--quota', '3');
  await berth.run('project', 'update', 'team-b', '--department', 'research', '--train-nodes', 'type=dgx1');
  await berth.run('project', 'update', 'team-c', '--department', 'research');
  await page.goto(`${berth.address}/projects`);
  const table = page.getByRole('region', { name: 'Projects' }).getByRole('table');
  for (const title of ['Assigned GPUs', 'Created', 'Training node affinity', 'Interactive node affinity'])
    await expect(table.getByRole('columnheader', { name: title })).toBeVisible();
  const row = table.getByRole('row').filter({ hasText: 'team-b' });
  await expect(row).toContainText(String(new Date().getFullYear()));
  await expect(row).toContainText('type=dgx1');
  await expect(row).toContainText('none');
  await page.getByLabel('Filter and search projects').fill('team-a');
  await expect(table.getByRole('row')).toHaveCount(2);
  await page.getByLabel('Filter and search projects').fill('zzzz');
  await expect(page.getByText('No projects match')).toBeVisible();
  await page.getByLabel('Filter and search projects').fill('');
  await page.getByLabel('Department', { exact: true }).selectOption('research');
  await expect(table.getByRole('row')).toHaveCount(3);

  const tree = page.getByRole('region', { name: 'Departments' });
  await expect(tree.getByRole('listitem').filter({ hasText: 'research' }).getByRole('link')).toHaveText([
    'team-b',
    'team-c',
  ]);
  await expect(tree).toContainText('quotas of 4 GPUs in all; the department has 3');

  await page.getByLabel('Department', { exact: true }).selectOption('');
  await page.getByRole('button', { name: 'Delete team-a' }).click();
  await expect(page.getByRole('dialog')).toContainText('Delete the project team-a?');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  expect(await berth.run('project', 'list')).toContain('team-a');
});

test('pending jobs show their type, requested GPUs and wait time', async ({ berth, signedIn: page }) => {
  await berth.run('submit', 'full', '-p', 'team-d', '-g', '8', '--workers', '2', ...SLEEP);
  await berth.run('submit', 'waits', '-p', 'team-a', '-g', '8', '--workers', '2', ...SLEEP);
  const pending = page.getByRole('region', { name: 'Pending workloads' });
  for (const title of ['Name', 'Project', 'User', 'Type', 'Requested GPUs', 'Wait time'])
    await expect(pending.getByRole('columnheader', { name: title, exact: true })).toBeVisible();
  const row = pending.getByRole('row').filter({ hasText: 'waits' });
  await expect(row).toContainText('distributed');
  await expect(row).toContainText('2 × 8');
  // The reason is there in full.
  const cut = await row.locator('td.wraps').evaluate(cell => cell.scrollWidth > cell.clientWidth);
  expect(cut).toBe(false);
});

test('the manifest of a cluster is downloaded, as the command prints it', async ({
  berth,
  signedIn: page,
}) => {
  await page.goto(`${berth.address}/settings`);
  await page.getByLabel('Name of the cluster').fill('No Name!');
  await page.getByRole('button', { name: 'Download manifest' }).click();
  await expect(page.getByLabel('Name of the cluster')).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Name of the cluster').fill('lab');
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download manifest' }).click(),
  ]);
  expect(file.suggestedFilename()).toBe('berth-operator-lab.yaml');
  const chunks: Buffer[] = [];
  for await (const chunk of await file.createReadStream()) chunks.push(chunk as Buffer);
  expect(Buffer.concat(chunks).toString()).toBe(await berth.run('operator', 'manifest', '--cluster', 'lab'));
});

test('selected workloads are suspended, resumed and deleted together', async ({ berth, signedIn: page }) => {
  for (const name of ['one', 'two', 'three'])
    await berth.run('submit', name, '-p', 'team-a', '-g', '1', ...SLEEP);
  await page.goto(`${berth.address}/workloads`);
  await page.getByLabel('Select one').check();
  await page.getByLabel('Select two').check();
  const bar = page.getByRole('region', { name: 'Selected workloads' });
  await expect(bar).toContainText('2 selected');
  await bar.getByRole('button', { name: 'Suspend 2' }).click();
  const row = (name: string) => page.getByRole('row').filter({ hasText: name });
  for (const name of ['one', 'two']) await expect(row(name)).toContainText('Suspended');
  await expect(row('three')).not.toContainText('Suspended');
  await expect(bar).toBeHidden();
  await page.getByLabel('Select all workloads that are listed').check();
  await bar.getByRole('button', { name: 'Delete 3' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByText('No active workloads')).toBeVisible();
  // Deleted work stays in the history.
  await page.getByRole('button', { name: 'Finished' }).click();
  for (const name of ['one', 'two', 'three']) await expect(row(name)).toContainText('Deleted');
  await page.reload();
  await expect(row('three')).toContainText('Deleted');
});

test('a workload has a page of its own, with a timeline that shows its preemption', async ({
  berth,
  signedIn: page,
}) => {
  await berth.run('submit', 'victim', '-p', 'team-a', '-g', '8', '--workers', '2', '--grace', '1s', ...SLEEP);
  await berth.run('wait', 'victim', '-p', 'team-a', '--for', 'running', '--timeout', '60s');
  await berth.run('submit', 'owner', '-p', 'team-d', '-g', '8', ...SLEEP);
  await berth.run('wait', 'owner', '-p', 'team-d', '--for', 'running', '--timeout', '60s');
  const latest = page.locator('section', { has: page.getByRole('heading', { name: 'Latest' }) });
  await expect(latest).toContainText('preempted by team-d/owner');
  await page.getByRole('link', { name: 'victim', exact: true }).first().click();
  const drawer = page.getByRole('complementary', { name: 'Workload victim' });
  for (const name of ['Suspend', 'Clone', 'Delete'])
    await expect(drawer.getByRole('button', { name, exact: true })).toHaveText(name);
  await drawer.getByRole('link', { name: 'Open as a page' }).click();
  await expect(page).toHaveURL(/\/workload\/\d+$/);
  await expect(page.getByRole('heading', { name: 'victim' })).toBeVisible();
  const timeline = page.getByRole('region', { name: 'Timeline' });
  await expect(timeline.getByRole('img')).toHaveAttribute('aria-label', /1 preemption$/);
  const phases = await timeline.getByRole('listitem').locator('b').allTextContents();
  // Steps that took less than a second have no line.
  expect(phases.filter(name => name === 'Running' || name === 'Queued').slice(-2)).toEqual([
    'Running',
    'Queued',
  ]);
  await expect(timeline).toContainText('team-d/owner');
  await page.reload();
  await expect(timeline).toBeVisible();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await expect(page.getByRole('dialog')).toContainText('Gets SIGTERM, then is killed after 1s');
});

test('checkpoints are one line in the events, and all of them on request', async ({
  berth,
  signedIn: page,
}) => {
  await berth.run('submit', 'saves', '-p', 'team-a', '-g', '1', '-i', 'berth/quickstart');
  await page.goto(`${berth.address}/workloads`);
  await page.getByRole('link', { name: 'saves', exact: true }).click();
  await page.getByRole('tab', { name: 'Events' }).click();
  const events = page.getByRole('tabpanel');
  await expect(events).toContainText(/saved its state \d+ times/, { timeout: 60_000 });
  await page.getByLabel('Show every checkpoint').check();
  await expect(events).not.toContainText(/saved its state \d+ times/);
});

test('the form refuses 1.5 GPUs beside the field', async ({ signedIn: page }) => {
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('GPUs per worker').fill('1.5');
  await expect(form.getByText('Whole GPUs, or a fraction below 1 such as 0.5')).toBeVisible();
  await form.getByLabel('GPUs per worker').fill('-1');
  await expect(form.getByText('Must be 0 or more')).toBeVisible();
  await form.getByLabel('GPUs per worker').fill('0.5');
  await expect(form.locator('[aria-invalid]')).toHaveCount(0);
});

test('a long line of a log wraps on request', async ({ berth, signedIn: page }) => {
  const script = 'printf "word %.0s" $(seq 200); echo; sleep infinity';
  await berth.run('submit', 'long', '-p', 'team-a', '-g', '1', '-i', 'bash', '--', 'bash', '-c', script);
  await page.goto(`${berth.address}/workloads`);
  await page.getByRole('link', { name: 'long', exact: true }).click();
  await page.getByRole('tab', { name: 'Logs' }).click();
  const log = page.getByRole('log');
  await expect(log).toContainText('word word');
  const isWide = () => log.evaluate(frame => frame.scrollWidth > frame.clientWidth + 1);
  expect(await isWide()).toBe(true);
  await page.getByRole('button', { name: 'Wrap' }).click();
  expect(await isWide()).toBe(false);
});
